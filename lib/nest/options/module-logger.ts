import { Logger } from '@nestjs/common';

/**
 * The module's logger, which follows `app.useLogger()`. Keys may appear in messages. Holder ids, URLs, and passwords
 * never do.
 */
export const logger = new Logger('DistributedLock');
