import type { BackendContext, LockBackend, LockProvider } from '../../../api/lock-provider.js';
import type { SqlRowLockOptions, SqlSettings } from '../options.js';
import { readOptions, type SqlConnectionOptions } from '../drivers.js';
import { LentTransaction } from './lent-transaction.js';
import { RowLockBackend } from './row-lock-backend.js';

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
