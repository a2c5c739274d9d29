import type { DataSource, EntityManager } from 'typeorm';
import { type Duration, toMilliseconds } from '../../../lock/duration.js';
import { LockConfigError } from '../../../lock/errors.js';
import type { SessionTerms } from '../sessions.js';
import { DEFAULT_TABLE, isTableName } from '../table-layout.js';

declare module '../../../lock/lock-options.js' {
  interface LockOptions {
    /**
     * Takes the row lock inside this running transaction of yours, and keeps it until you commit or roll back; `release()` ends
     * the local state alone. Only with a `TypeOrmRowLockProvider` on the same database. Waiting asks again every 50 ms or so, so
     * that a busy lock never blocks your connection nor aborts your transaction.
     */
    transaction?: EntityManager | undefined;
  }
}

/** Where the locks are, and how long they last without a sign of life. */
export interface TypeOrmRowLockProviderOptions {
  /** The application's own: `mysql`, `mariadb` or `postgres`. Its options are used for a pool of our own; it is never used or closed. */
  readonly dataSource: DataSource;
  /** The table of the locks, `name` or `schema.name`. Default `distributed_lock`. */
  readonly table?: string | undefined;
  /** Create the table when it is missing. Default false: create it in a migration. */
  readonly synchronize?: boolean | undefined;
  /**
   * After how many ms without a sign of life the server frees the locks of a process that is frozen or cut off. A heartbeat each
   * third of it. Default 30 s, at least 1 s.
   */
  readonly sessionGuard?: Duration | undefined;
  /** How many connections this process may have for locks; one more is for control. One for each key held or waited for. Default 10. */
  readonly maxConnections?: number | undefined;
  /** Fencing tokens, by a counter that is committed at each grant. Default false; costs two round trips and one commit a lock. */
  readonly fencing?: boolean | undefined;
  /** How long the server may be silent after a statement of ours, in ms, before its outcome counts as unknown. Default 2 s, at least 50 ms. */
  readonly statementTimeout?: Duration | undefined;
}

/** The options, checked. */
export interface RowLockSettings {
  readonly dataSource: DataSource;
  readonly database: 'mysql' | 'postgres';
  readonly table: string;
  readonly synchronize: boolean;
  readonly fencing: boolean;
  readonly terms: SessionTerms;
}

/** @throws LockConfigError for options that cannot work. */
export function readOptions(options: TypeOrmRowLockProviderOptions): RowLockSettings {
  const { dataSource, table = DEFAULT_TABLE, synchronize = false, fencing = false, maxConnections = 10 } = options;
  if (!isTableName(table)) {
    throw new LockConfigError(
      'TypeOrmRowLockProvider: "table" must be a name, or a schema and a name, of letters, digits and "_".',
    );
  }
  if (!Number.isSafeInteger(maxConnections) || maxConnections < 1) {
    throw new LockConfigError('TypeOrmRowLockProvider: "maxConnections" must be a whole number from 1 on.');
  }
  return {
    dataSource,
    database: databaseOf(dataSource),
    table,
    synchronize,
    fencing,
    terms: {
      guard: toMilliseconds(options.sessionGuard ?? '30s', 'sessionGuard', { min: 1_000 }),
      patience: toMilliseconds(options.statementTimeout ?? '2s', 'statementTimeout', { min: 50 }),
      maxConnections,
    },
  };
}

function databaseOf(dataSource: DataSource): RowLockSettings['database'] {
  switch (dataSource.options.type) {
    case 'mysql':
    case 'mariadb':
      return 'mysql';
    case 'postgres':
      return 'postgres';
    default:
      throw new LockConfigError(
        `TypeOrmRowLockProvider works with MySQL, MariaDB and Postgres, not with "${dataSource.options.type}", which has no row locks.`,
      );
  }
}
