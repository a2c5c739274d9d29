import type { SqlSource } from '../sources/source.js';
import { readOptions, type SqlLockOptions } from '../options.js';

export interface SqlVersionLockOptions extends SqlLockOptions {
  /** How many connections this process has for locks, besides one for control. Each is used for one statement. Default 4. */
  readonly maxConnections?: number | undefined;
}

/** @throws LockConfigError for options that cannot work */
export function readVersionLockOptions(provider: string, options: SqlVersionLockOptions, source: SqlSource) {
  return readOptions(provider, options, source, { least: 1, usual: 4 });
}
