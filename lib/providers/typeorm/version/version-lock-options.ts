import { type ConfiguredDuration, toMilliseconds } from '../../../api/duration.js';
import { LockConfigError } from '../../../api/errors.js';
import { type DatabaseSettings, readOptions, type TypeOrmLockOptions } from '../options.js';

export interface TypeOrmVersionLockProviderOptions extends TypeOrmLockOptions {
  /** How many connections this process has for locks, besides one for control. Each is used for one statement. Default 4; not for SQLite. */
  readonly maxConnections?: number | undefined;
  /**
   * After how long without a use the row of a key is deleted, in ms; 1 s to 24.8 days, or `false` for never. Once an hour one of all processes looks.
   * Default 7 days. Needs `DELETE`; without it a warning says so, and the rows stay.
   */
  readonly purgeAfter?: ConfiguredDuration | false | undefined;
}

/** The options, checked; times in ms. */
export interface VersionLockSettings extends DatabaseSettings {
  readonly purgeAfter: number | undefined;
}

const PROVIDER = 'TypeOrmVersionLockProvider';

/** @throws LockConfigError for options that cannot work */
export function readVersionLockOptions(options: TypeOrmVersionLockProviderOptions): VersionLockSettings {
  const settings = readOptions(PROVIDER, options, { least: 1, usual: 4 });
  const { options: source } = settings.dataSource;
  if (source.type === 'better-sqlite3' && (source.database === '' || source.database.startsWith(':memory:'))) {
    throw new LockConfigError(
      `${PROVIDER}: a database of better-sqlite3 in memory belongs to one connection only; give it a file.`,
    );
  }
  const { purgeAfter = '7d' } = options;
  return {
    ...settings,
    purgeAfter: purgeAfter === false ? undefined : toMilliseconds(purgeAfter, 'purgeAfter', { min: 1_000 }),
  };
}
