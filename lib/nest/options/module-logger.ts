import { Logger, type LoggerService } from '@nestjs/common';
import type { DistributedLockModuleOptions } from './module-options.js';

/** Where the module reports: to the logger of its options, or to that of the application. */
export function loggerOf({ logger }: DistributedLockModuleOptions): LoggerService {
  return logger ?? new Logger('DistributedLock');
}
