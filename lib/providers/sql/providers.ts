import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { readOptions, type SqlConnectionOptions } from './drivers.js';
import type { SqlRowLockOptions, SqlSessionLockOptions, SqlSettings, SqlVersionLockOptions } from './options.js';
import { AdvisoryLockBackend, RowLockBackend } from './session-lock-backends.js';
import { VersionLockBackend } from './version/version-lock-backend.js';

/** Each key held or waited for counts toward `maxConnections`. */
export type SqlRowLockProviderOptions = SqlRowLockOptions & SqlConnectionOptions;

/**
 * Locks on table rows, using `SELECT … FOR UPDATE` in a separate transaction. For MariaDB 10.6, MySQL 8.0.1, and
 * Postgres 13 or later.
 *
 * It guarantees mutual exclusion as long as there is one writer, and supports shared locks on MySQL and MariaDB. For
 * writes through {@link sqlClientOf}, the guarantee is absolute: they are committed while the lock is held, or not at
 * all. A process that freezes or is cut off loses the lock after the session guard (default 30 s), and knows so by
 * then. A process that dies loses it immediately. Among processes there is no strict order, but a waiter that has
 * waited longer is usually next.
 *
 * Each key held or waited for uses one connection. Mutual exclusion can break with several writers (Galera or
 * multi-primary, which are rejected), or when a failover loses the connection. For writes elsewhere, it can also break
 * if a process pauses between its last check and the write, or in the half second before it notices that its connection
 * was killed.
 */
export class SqlRowLockProvider implements LockProvider {
  readonly #settings: SqlSettings;

  /** @throws LockConfigError for invalid options */
  constructor(options: SqlRowLockProviderOptions) {
    this.#settings = readOptions('SqlRowLockProvider', 'row', options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new RowLockBackend(context, this.#settings);
  }
}

export type SqlVersionLockProviderOptions = SqlVersionLockOptions & SqlConnectionOptions;

/**
 * Leases in table rows, with a version column as the fencing token. For MySQL, MariaDB, and Postgres.
 *
 * It guarantees mutual exclusion as long as there is only one writer whose wall clock doesn't jump. Each operation is a
 * single statement that compares the row with what was read before and updates it using the database's clock. Rows are
 * kept, so versions survive releases, crashes, and restarts. Locks don't use a connection while held or waited for.
 * A holder notices a loss by its deadline.
 *
 * Mutual exclusion can break with several writers, each with its own clock and rows (rejected at startup); if the
 * database's clock jumps (if forward, leases expire early; if backward, they last longer, but tokens still grow); or if
 * a failover or a backup loses committed rows. As with any lease, a process may also pause between its last check and a
 * write, so compare tokens when you write.
 */
export class SqlVersionLockProvider implements LockProvider {
  readonly #settings: SqlSettings;

  /** @throws LockConfigError for invalid options */
  constructor(options: SqlVersionLockProviderOptions) {
    this.#settings = readOptions('SqlVersionLockProvider', 'version', options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new VersionLockBackend(context, this.#settings);
  }
}

/**
 * `table` and `synchronize` only matter with `fencing`. `maxConnections` must be at least 2: one to hold locks and one
 * to wait.
 */
export type SqlAdvisoryLockProviderOptions = SqlSessionLockOptions & SqlConnectionOptions;

/**
 * Locks that the server keeps for a connection, without a table: `GET_LOCK` on MariaDB 10.6 and MySQL 8.0.1 or later,
 * and session-level advisory locks (exclusive and shared) on Postgres 14 or later.
 *
 * It guarantees mutual exclusion as long as there is only one server. A process that freezes or is cut off loses the
 * lock after the session guard (default 30 s), and knows so by then. A process that dies loses it immediately. Among
 * processes there is no strict order, but a waiter that has waited longer is usually next.
 *
 * Locks that are free when requested share one connection. A waiter uses a separate connection per key, which then
 * holds the lock. If a connection is lost, so are all locks on it. Mutual exclusion can break with several writers
 * (Galera or multi-primary, which are rejected), during a failover, or if a process pauses between its last check and a
 * write, so use the token (`fencing`).
 */
export class SqlAdvisoryLockProvider implements LockProvider {
  readonly #settings: SqlSettings;

  /** @throws LockConfigError for invalid options */
  constructor(options: SqlAdvisoryLockProviderOptions) {
    this.#settings = readOptions('SqlAdvisoryLockProvider', 'advisory', options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new AdvisoryLockBackend(context, this.#settings);
  }
}
