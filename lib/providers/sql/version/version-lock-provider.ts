import type { BackendContext, LockBackend, LockProvider } from '../../../api/lock-provider.js';
import type { SqlVersionLockOptions, SqlSettings } from '../options.js';
import { readOptions, type SqlConnectionOptions } from '../drivers.js';
import { VersionLockBackend } from './version-lock-backend.js';

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
