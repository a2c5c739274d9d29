import type { DataSource } from 'typeorm';
import { type Duration, toMilliseconds } from '../../../lock/duration.js';
import { LockConfigError } from '../../../lock/errors.js';
import { readDataSource, readMaxConnections, readSwitch, readTable } from '../database-options.js';
import type { DatabaseFamily } from '../table-layout.js';

/** Where the leases are. */
export interface TypeOrmVersionLockProviderOptions {
  /**
   * The application's own: `mysql`, `mariadb`, `postgres`, `better-sqlite3` or `sqljs`. Its options are used for connections of
   * our own, so it need not be initialized; but that of `sqljs`, which has one database in the memory of the process, must be.
   */
  readonly dataSource: DataSource;
  /** The table of the locks, `name` or `schema.name`. Default `distributed_lock`. */
  readonly table?: string | undefined;
  /** Create the table when it is missing. Default false: create it in a migration. */
  readonly synchronize?: boolean | undefined;
  /** How many connections this process has for locks, beside one for control. Each is taken for one statement. Default 4; not for SQLite. */
  readonly maxConnections?: number | undefined;
  /**
   * How long the database may be silent after a statement of ours, or SQLite locked by a transaction, in ms, before the operation
   * fails. Default 2 s, at least 50 ms.
   */
  readonly statementTimeout?: Duration | undefined;
  /**
   * Start also where two may hold a lock at once: Galera, several primaries, a read-only server or standby, a pooler that shares
   * connections among clients. Default false: `start` throws `LockConfigError`. For a cluster whose locks all go to one node.
   */
  readonly allowUnsafeTopology?: boolean | undefined;
}

/** The options, checked. */
export interface VersionLockSettings {
  readonly dataSource: DataSource;
  readonly database: DatabaseFamily;
  readonly table: string;
  readonly synchronize: boolean;
  readonly allowUnsafeTopology: boolean;
  readonly maxConnections: number;
  readonly patience: number;
}

const PROVIDER = 'TypeOrmVersionLockProvider';

/** @throws LockConfigError for options that cannot work. */
export function readOptions(options: TypeOrmVersionLockProviderOptions): VersionLockSettings {
  const dataSource = readDataSource(PROVIDER, options);
  return {
    dataSource,
    database: databaseOf(dataSource),
    table: readTable(PROVIDER, options.table),
    synchronize: readSwitch(PROVIDER, 'synchronize', options.synchronize),
    allowUnsafeTopology: readSwitch(PROVIDER, 'allowUnsafeTopology', options.allowUnsafeTopology),
    maxConnections: readMaxConnections(PROVIDER, options.maxConnections ?? 4, 1),
    patience: toMilliseconds(options.statementTimeout ?? '2s', 'statementTimeout', { min: 50 }),
  };
}

function databaseOf(dataSource: DataSource): DatabaseFamily {
  const { options } = dataSource;
  switch (options.type) {
    case 'mysql':
    case 'mariadb':
      return 'mysql';
    case 'postgres':
      return 'postgres';
    case 'sqljs':
      return 'sqlite';
    case 'better-sqlite3':
      if (options.database !== '' && !options.database.startsWith(':memory:')) return 'sqlite';
      throw new LockConfigError(
        `${PROVIDER}: a database of better-sqlite3 in memory belongs to one connection alone; give it a file.`,
      );
    default:
      throw new LockConfigError(
        `${PROVIDER} works with MySQL, MariaDB, Postgres, better-sqlite3 and sqljs, not with "${options.type}".`,
      );
  }
}
