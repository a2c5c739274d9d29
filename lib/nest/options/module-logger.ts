import { Logger } from '@nestjs/common';

/**
 * The module reports here what it locks with, and what needs attention: wherever `app.useLogger()` sends it. Keys may appear in messages; holder
 * ids, URLs and passwords never do.
 */
export const logger = new Logger('DistributedLock');
