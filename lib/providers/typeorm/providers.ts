import type { DataSource } from 'typeorm';
import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import type { SqlRowLockOptions, SqlSessionLockOptions, SqlSettings, SqlVersionLockOptions } from '../sql/options.js';
import type { LendTransaction } from '../sql/row/lent-transaction.js';
import { AdvisoryLockBackend, RowLockBackend } from '../sql/session-lock-backends.js';
import { VersionLockBackend } from '../sql/version/version-lock-backend.js';
import { readOptions, type TypeOrmLockOptions } from './data-source.js';
import { EntityTransaction } from './entity-transaction.js';

/** Locks that live as long as a connection. */
export interface TypeOrmSessionLockOptions extends SqlSessionLockOptions, TypeOrmLockOptions {}
/** `maxConnections` counts one for each key that is held or waited for. */
export interface TypeOrmRowLockProviderOptions extends SqlRowLockOptions, TypeOrmLockOptions {}
export interface TypeOrmVersionLockProviderOptions extends SqlVersionLockOptions, TypeOrmLockOptions {}
/** `table` and `synchronize` matter only with `fencing`. `maxConnections` is 2 or more: one to hold on, one to wait on. */
export type TypeOrmAdvisoryLockProviderOptions = TypeOrmSessionLockOptions;

/**
 * Locks on rows of a table, by `SELECT … FOR UPDATE` in a transaction of their own: MariaDB from 10.6, MySQL from 8.0.1,
 * Postgres from 13 on.
 *
 * Promised: mutual exclusion while there is one writer, shared locks on MySQL and MariaDB, and for what is written through
 * {@link entityManagerOf} an absolute guarantee: it is committed with the lock held, or not at all. A process that is frozen or cut
 * off loses the lock when the session guard has passed (default 30 s) and knows it by then; a process that dies loses it immediately.
 * A waiter that has waited for longer is usually the next; there is no strict order among processes.
 *
 * Each key that is held or waited for costs one connection of our own. The guarantee breaks with several writers (Galera,
 * multi-primary: refused) and with a failover that loses the connection; for writes elsewhere, with a pause between the last check and the
 * write, and in the half a second in which a killed connection has not noticed.
 */
export class TypeOrmRowLockProvider implements LockProvider {
  readonly #settings: SqlSettings;
  readonly #dataSource: DataSource;

  /** @throws LockConfigError for options that cannot work */
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
 * Leases in the rows of a table, each with a version column that is the fencing token: MySQL, MariaDB and Postgres.
 *
 * Promised: mutual exclusion while there is one writer and its wall clock is not stepped. Each operation is one statement that
 * compares the row with what was read before, and sets it by the database's clock; the row stays, so versions outlive releases,
 * crashes and restarts. Held and waiting locks cost no connection. A holder knows of a loss by its deadline.
 *
 * The guarantee breaks with several writers, each with a clock and rows of its own (refused at start); with a clock of the database that is stepped
 * (forwards: leases end early; backwards: they last longer, and tokens grow all the same); with a failover or a backup that loses committed
 * rows. As with every lease, a pause between the last check and a write breaks it: let the data that you write compare tokens.
 */
export class TypeOrmVersionLockProvider implements LockProvider {
  readonly #settings: SqlSettings;

  /** @throws LockConfigError for options that cannot work */
  constructor(options: TypeOrmVersionLockProviderOptions) {
    this.#settings = readOptions('TypeOrmVersionLockProvider', 'version', options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new VersionLockBackend(context, this.#settings);
  }
}

/**
 * Locks that the server keeps for a connection, without a table: `GET_LOCK` of MariaDB from 10.6 and MySQL from 8.0.1 on,
 * session-level advisory locks of Postgres from 14 on (those also shared).
 *
 * Promised: mutual exclusion while there is one server. A process that is frozen or cut off loses the lock when the session guard has
 * passed (default 30 s) and knows it by then; a process that dies loses it immediately. A waiter that has waited for longer is usually
 * the next; there is no strict order among processes.
 *
 * Locks that are free when they are asked for share one connection of our own; a waiter has another one for each key, and keeps the lock
 * there. When the connection of several locks is lost, all of them are. It breaks with several writers (Galera, multi-primary: refused), a
 * failover, and a pause between the last check and the write: use the token (`fencing`).
 */
export class TypeOrmAdvisoryLockProvider implements LockProvider {
  readonly #settings: SqlSettings;

  /** @throws LockConfigError for options that cannot work */
  constructor(options: TypeOrmAdvisoryLockProviderOptions) {
    this.#settings = readOptions('TypeOrmAdvisoryLockProvider', 'advisory', options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new AdvisoryLockBackend(context, this.#settings);
  }
}
