import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { readOptions, type SqlConnectionOptions } from './drivers.js';
import type { SqlRowLockOptions, SqlSessionLockOptions, SqlSettings, SqlVersionLockOptions } from './options.js';
import { LentTransaction } from './row/lent-transaction.js';
import { AdvisoryLockBackend, RowLockBackend } from './session-lock-backends.js';
import { VersionLockBackend } from './version/version-lock-backend.js';

/** `maxConnections` counts one for each key that is held or waited for. */
export type SqlRowLockProviderOptions = SqlRowLockOptions & SqlConnectionOptions;

/**
 * Locks on rows of a table, by `SELECT … FOR UPDATE` in a transaction of their own: MariaDB from 10.6, MySQL from 8.0.1,
 * Postgres from 13 on.
 *
 * Promised: mutual exclusion while there is one writer, shared locks on MySQL and MariaDB, and for what is written through
 * {@link sqlClientOf} an absolute guarantee: it is committed with the lock held, or not at all. A process that is frozen or cut
 * off loses the lock when the session guard has passed (default 30 s) and knows it by then; a process that dies loses it immediately.
 * A waiter that has waited for longer is usually the next; there is no strict
 * order among processes.
 *
 * Each key that is held or waited for costs one connection of our own. The guarantee breaks with several writers (Galera,
 * multi-primary: refused) and with a failover that loses the connection; for writes elsewhere, with a pause between the last check and the
 * write, and in the half a second in which a killed connection has not noticed.
 */
export class SqlRowLockProvider implements LockProvider {
  readonly #settings: SqlSettings;

  /** @throws LockConfigError for options that cannot work */
  constructor(options: SqlRowLockProviderOptions) {
    this.#settings = readOptions('SqlRowLockProvider', 'row', options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new RowLockBackend(context, this.#settings, (session, holder) => new LentTransaction(session, holder));
  }
}

export type SqlVersionLockProviderOptions = SqlVersionLockOptions & SqlConnectionOptions;

/**
 * Leases in the rows of a table, each with a version column that is the fencing token: MySQL, MariaDB, Postgres.
 *
 * Promised: mutual exclusion while there is one writer and its wall clock is not stepped. Each operation is one statement that
 * compares the row with what was read before, and sets it by the database's clock; the row stays, so versions outlive releases,
 * crashes and restarts. Held and waiting locks cost no connection. A holder knows of a loss by its deadline.
 *
 * The guarantee breaks with several writers, each with a clock and rows of its own (refused at start); with a clock of the database that is stepped
 * (forwards: leases end early; backwards: they last longer, and tokens grow all the same); with a failover or a backup that loses committed
 * rows. As with every lease, a pause between the last check and a write breaks it: let the data that you write compare tokens.
 */
export class SqlVersionLockProvider implements LockProvider {
  readonly #settings: SqlSettings;

  /** @throws LockConfigError for options that cannot work */
  constructor(options: SqlVersionLockProviderOptions) {
    this.#settings = readOptions('SqlVersionLockProvider', 'version', options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new VersionLockBackend(context, this.#settings);
  }
}

/** `table` and `synchronize` matter only with `fencing`. `maxConnections` is 2 or more: one to hold on, one to wait on. */
export type SqlAdvisoryLockProviderOptions = SqlSessionLockOptions & SqlConnectionOptions;

/**
 * Locks that the server keeps for a connection, without a table: `GET_LOCK` of MariaDB from 10.6 and MySQL from 8.0.1 on,
 * session-level advisory locks of Postgres from 14 on (those also shared).
 *
 * Promised: mutual exclusion while there is one server. A process that is frozen or cut off loses the lock when the session guard has
 * passed (default 30 s) and knows it by then; a process that dies loses it immediately. A waiter that has waited for longer is usually the next; there is no strict
 * order among processes.
 *
 * Locks that are free when they are asked for share one connection of our own; a waiter has another one for each key, and keeps the lock
 * there. When the connection of several locks is lost, all of them are. It breaks with several writers (Galera, multi-primary: refused), a
 * failover, and a pause between the last check and the write: use the token (`fencing`).
 */
export class SqlAdvisoryLockProvider implements LockProvider {
  readonly #settings: SqlSettings;

  /** @throws LockConfigError for options that cannot work */
  constructor(options: SqlAdvisoryLockProviderOptions) {
    this.#settings = readOptions('SqlAdvisoryLockProvider', 'advisory', options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new AdvisoryLockBackend(context, this.#settings);
  }
}
