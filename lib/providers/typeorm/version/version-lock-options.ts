import { LockConfigError } from '../../../api/errors.js';
import { type DatabaseSettings, readOptions, type TypeOrmLockOptions } from '../options.js';

export interface TypeOrmVersionLockProviderOptions extends TypeOrmLockOptions {
  /** How many connections this process has for locks, besides one for control. Each is used for one statement. Default 4; not for SQLite. */
  readonly maxConnections?: number | undefined;
}

const PROVIDER = 'TypeOrmVersionLockProvider';

/** @throws LockConfigError for options that cannot work */
export function readVersionLockOptions(options: TypeOrmVersionLockProviderOptions): DatabaseSettings {
  const settings = readOptions(PROVIDER, options, { least: 1, usual: 4 });
  const { options: source } = settings.dataSource;
  if (source.type === 'better-sqlite3' && (source.database === '' || source.database.startsWith(':memory:'))) {
    throw new LockConfigError(
      `${PROVIDER}: a database of better-sqlite3 in memory belongs to one connection only; give it a file.`,
    );
  }
  return settings;
}
