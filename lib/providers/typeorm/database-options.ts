import type { DataSource } from 'typeorm';
import { type Duration, toMilliseconds } from '../../lock/duration.js';
import { LockConfigError } from '../../lock/errors.js';
import type { SessionTerms } from './sessions.js';

/** Where the locks are that live as long as a connection, and how long they last without a sign of life. */
export interface TypeOrmSessionLockOptions {
  /** The application's own: `mysql`, `mariadb` or `postgres`. Its options are used for a pool of our own; it is never used or closed. */
  readonly dataSource: DataSource;
  /** The table of the row locks and of the fencing counters, `name` or `schema.name`. Default `distributed_lock`. */
  readonly table?: string | undefined;
  /** Create the table when it is missing. Default false: create it in a migration. */
  readonly synchronize?: boolean | undefined;
  /**
   * After how many ms without a sign of life the server frees the locks of a process that is frozen or cut off. A heartbeat each
   * third of it. Default 30 s, at least 1 s.
   */
  readonly sessionGuard?: Duration | undefined;
  /** How many connections this process may have for locks; one more is for control. Default 10. */
  readonly maxConnections?: number | undefined;
  /** Fencing tokens, by a counter that is committed at each grant. Default false; costs one commit a lock. */
  readonly fencing?: boolean | undefined;
  /** How long the server may be silent after a statement of ours, in ms, before its outcome counts as unknown. Default 2 s, at least 50 ms. */
  readonly statementTimeout?: Duration | undefined;
  /**
   * Start also where two may hold a lock at once: Galera, several primaries, a read-only server or standby, a pooler that shares
   * connections among clients. Default false: `start` throws `LockConfigError`. For a cluster whose locks all go to one node.
   */
  readonly allowUnsafeTopology?: boolean | undefined;
}

/** The options, checked. */
export interface DatabaseSettings {
  readonly dataSource: DataSource;
  readonly database: 'mysql' | 'postgres';
  readonly table: string;
  readonly synchronize: boolean;
  readonly fencing: boolean;
  readonly allowUnsafeTopology: boolean;
  readonly terms: SessionTerms;
}

// Identifiers cannot be bound as values. These need no escape in any database.
const TABLE = /^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$/;

/** @throws LockConfigError for options that cannot work. */
export function readOptions(
  provider: string,
  options: TypeOrmSessionLockOptions,
  leastConnections: number,
): DatabaseSettings {
  const { dataSource, table = 'distributed_lock', synchronize = false, fencing = false, maxConnections = 10 } = options;
  if (!TABLE.test(table)) {
    throw new LockConfigError(
      `${provider}: "table" must be a name, or a schema and a name, of letters, digits and "_".`,
    );
  }
  if (!Number.isSafeInteger(maxConnections) || maxConnections < leastConnections) {
    throw new LockConfigError(`${provider}: "maxConnections" must be a whole number from ${leastConnections} on.`);
  }
  return {
    dataSource,
    database: databaseOf(provider, dataSource),
    table,
    synchronize,
    fencing,
    allowUnsafeTopology: options.allowUnsafeTopology ?? false,
    terms: {
      guard: toMilliseconds(options.sessionGuard ?? '30s', 'sessionGuard', { min: 1_000 }),
      patience: toMilliseconds(options.statementTimeout ?? '2s', 'statementTimeout', { min: 50 }),
      maxConnections,
    },
  };
}

function databaseOf(provider: string, dataSource: DataSource): DatabaseSettings['database'] {
  switch (dataSource.options.type) {
    case 'mysql':
    case 'mariadb':
      return 'mysql';
    case 'postgres':
      return 'postgres';
    default:
      throw new LockConfigError(
        `${provider} works with MySQL, MariaDB and Postgres, not with "${dataSource.options.type}", which has no such locks.`,
      );
  }
}
