import type { DataSource } from 'typeorm';
import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import type { SqlRowLockOptions, SqlSessionLockOptions, SqlSettings, SqlVersionLockOptions } from '../sql/options.js';
import type { LendTransaction } from '../sql/row/lent-transaction.js';
import { AdvisoryLockBackend, RowLockBackend } from '../sql/session-lock-backends.js';
import { VersionLockBackend } from '../sql/version/version-lock-backend.js';
import { readOptions, type TypeOrmLockOptions } from './data-source.js';
import { EntityTransaction } from './entity-transaction.js';

/** Options for row locks and advisory locks with TypeORM. */
export interface TypeOrmSessionLockOptions extends SqlSessionLockOptions, TypeOrmLockOptions {}
/** Each key that is held or waited for counts toward `maxConnections`. */
export interface TypeOrmRowLockProviderOptions extends SqlRowLockOptions, TypeOrmLockOptions {}
export interface TypeOrmVersionLockProviderOptions extends SqlVersionLockOptions, TypeOrmLockOptions {}
/**
 * `table` and `synchronize` matter only with `fencing`. `maxConnections` must be at least 2: one to hold locks and one
 * to wait.
 */
export type TypeOrmAdvisoryLockProviderOptions = TypeOrmSessionLockOptions;

/**
 * Locks on table rows, using `SELECT … FOR UPDATE` in a separate transaction. For MariaDB 10.6, MySQL 8.0.1, and
 * Postgres 13 or later.
 *
 * It guarantees mutual exclusion as long as there is only one writer, and it supports shared locks on MySQL and
 * MariaDB. For writes through {@link entityManagerOf}, the guarantee is absolute: they are committed while the lock is
 * held, or not at all. A process that freezes or is cut off loses the lock after the session guard (default 30 s) and
 * knows that by then. A process that dies loses it immediately. Among processes there is no strict order, but a waiter
 * that has waited longer is usually next.
 *
 * Each key that is held or waited for uses one connection. Mutual exclusion can break if there are several writers
 * (Galera or multi-primary, which are rejected) or a failover loses the connection. For writes elsewhere, it can also
 * break if a process pauses between its last check and the write, or in the half second before it notices that its
 * connection was killed.
 */
export class TypeOrmRowLockProvider implements LockProvider {
  readonly #settings: SqlSettings;
  readonly #dataSource: DataSource;

  /** @throws LockConfigError for invalid options */
  constructor(options: TypeOrmRowLockProviderOptions) {
    this.#settings = readOptions('TypeOrmRowLockProvider', 'row', options);
    this.#dataSource = options.dataSource;
  }

  createBackend(context: BackendContext): LockBackend {
    const lend: LendTransaction = (session, holder) =>
      new EntityTransaction(session, holder, this.#dataSource, context);
    return new RowLockBackend(context, this.#settings, lend);
  }
}

/**
 * Leases in table rows, with a version column as the fencing token. For MySQL, MariaDB, and Postgres.
 *
 * It guarantees mutual exclusion as long as there is only one writer and its wall clock doesn't jump. Each operation is
 * a single statement that compares the row with what was read and updates it by the database's clock. Rows are kept, so
 * versions survive releases, crashes, and restarts. Locks don't use a connection while they are held or waited for. A
 * holder notices a loss by its deadline.
 *
 * Mutual exclusion can break if there are several writers, each with its own clock and rows (rejected at startup); if
 * the database's clock jumps (if forward, leases expire early; if backward, they last longer, but tokens still grow);
 * or if a failover or a backup loses committed rows. As with any lease, a process may also pause between its last check
 * and a write, so check tokens when you write.
 */
export class TypeOrmVersionLockProvider implements LockProvider {
  readonly #settings: SqlSettings;

  /** @throws LockConfigError for invalid options */
  constructor(options: TypeOrmVersionLockProviderOptions) {
    this.#settings = readOptions('TypeOrmVersionLockProvider', 'version', options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new VersionLockBackend(context, this.#settings);
  }
}

/**
 * Locks that the server keeps per connection, without a table: `GET_LOCK` on MariaDB 10.6 and MySQL 8.0.1 or later,
 * and session-level advisory locks (exclusive and shared) on Postgres 14 or later.
 *
 * It guarantees mutual exclusion as long as there is only one server. A process that freezes or is cut off loses the
 * lock after the session guard (default 30 s) and knows that by then. A process that dies loses it immediately. Among
 * processes there is no strict order, but a waiter that has waited longer is usually next.
 *
 * Locks that are free when requested share one connection. A waiter uses a separate connection per key, which then
 * holds the lock. If a connection is lost, so are all locks on it. Mutual exclusion can break with several writers
 * (Galera or multi-primary, which are rejected), during a failover, or if a process pauses between its last check and a
 * write, so use the token (`fencing`).
 */
export class TypeOrmAdvisoryLockProvider implements LockProvider {
  readonly #settings: SqlSettings;

  /** @throws LockConfigError for invalid options */
  constructor(options: TypeOrmAdvisoryLockProviderOptions) {
    this.#settings = readOptions('TypeOrmAdvisoryLockProvider', 'advisory', options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new AdvisoryLockBackend(context, this.#settings);
  }
}
