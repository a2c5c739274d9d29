import { type ConfiguredDuration, toMilliseconds } from '../../../api/duration.js';
import type { SqlSource } from '../sources/source.js';
import { readOptions, type SqlLockOptions } from '../options.js';

export interface SqlVersionLockOptions extends SqlLockOptions {
  /** How many connections this process has for locks, besides one for control. Each is used for one statement. Default 4. */
  readonly maxConnections?: number | undefined;
  /**
   * After how long without a use the row of a key is deleted, in ms; 1 s to 24.8 days, or `false` for never. Once an hour one of all processes looks.
   * Default 7 days. Needs `DELETE`; without it a warning says so, and the rows stay.
   */
  readonly purgeAfter?: ConfiguredDuration | false | undefined;
}

/** The options, checked; times in ms. */
export type VersionLockSettings = ReturnType<typeof readVersionLockOptions>;

/** @throws LockConfigError for options that cannot work */
export function readVersionLockOptions(provider: string, options: SqlVersionLockOptions, source: SqlSource) {
  const settings = readOptions(provider, options, source, { least: 1, usual: 4 });
  const { purgeAfter = '7d' } = options;
  const unusedFor = purgeAfter === false ? undefined : toMilliseconds(purgeAfter, 'purgeAfter', { min: 1_000 });
  return { ...settings, purgeAfter: unusedFor };
}
