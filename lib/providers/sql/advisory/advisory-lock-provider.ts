import type { BackendContext, LockBackend, LockProvider } from '../../../api/lock-provider.js';
import type { SqlSessionLockOptions, SqlSettings } from '../options.js';
import { readOptions, type SqlConnectionOptions } from '../drivers.js';
import { AdvisoryLockBackend } from './advisory-lock-backend.js';

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
