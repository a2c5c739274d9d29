import type { Holder, LockCapabilities, ProviderContext, Records } from '../../../api/lock-provider.js';
import { connectToServer, type Database } from '../database.js';
import { counterNameOf, rowNameOf } from '../lock-name.js';
import { purge, type PurgeOptions, readUnusedFor } from '../purge.js';
import { type SqlLocks, SqlLockProvider } from '../sql-lock-provider.js';
import { TokenCounters } from '../token-counters.js';
import { RowAttempt } from './row-attempt.js';
import { readRowLockOptions, type RowLockSettings, type TypeOrmRowLockProviderOptions } from './row-lock-options.js';

/**
 * Locks on rows of a table, by `SELECT … FOR UPDATE` in a transaction of their own: MariaDB from 10.6, MySQL from 8.0.1,
 * Postgres from 9.6 on.
 *
 * Promised: mutual exclusion while there is one writer, shared locks on MySQL and MariaDB, and for what is written through
 * {@link entityManagerOf} an absolute guarantee: it is committed with the lock held, or not at all. A process that is frozen or cut
 * off loses the lock when the session guard has passed (default 30 s) and knows it by then; a process that dies loses it immediately.
 * Waiters are served in the server's order.
 *
 * It costs one connection of our own for each key that is held or waited for. What breaks it: several writers (Galera,
 * multi-primary: refused), a failover that loses the connection; for writes elsewhere, a pause between the last check and the write, and the
 * half a second in which a killed connection has not noticed.
 */
export class TypeOrmRowLockProvider extends SqlLockProvider<RowLocks> {
  readonly capabilities: LockCapabilities;
  readonly records: Records = this.serverRecords;
  readonly #settings: RowLockSettings;

  /** @throws LockConfigError for options that cannot work. Connects to nothing: `start` does. */
  constructor(options: TypeOrmRowLockProviderOptions) {
    super();
    this.#settings = readRowLockOptions(options);
    const { database, fencing } = this.#settings;
    this.capabilities = {
      // On Postgres readers pass a writer that waits for the row, which would starve.
      ...{ shared: database === 'mysql', fair: false, fencing, lease: 'session' },
      ...{ minHold: false, forceRelease: false, queue: 'engine' },
    };
  }

  /**
   * Deletes the rows that were made more than `unusedFor` ago (1 s to 24.8 days) and that nobody holds; a row lock leaves no
   * trace of its use in its row. Also those of leases in the same table that ended so long ago. Answers how many. A key that is used
   * again costs one statement more the first time, and while its row goes an attempt that does not wait may find it busy.
   */
  async purge(options: PurgeOptions): Promise<number> {
    const unusedFor = readUnusedFor(options);
    return this.operate('purge()', ({ database }) => purge(database, unusedFor));
  }

  protected async connect(context: ProviderContext): Promise<RowLocks> {
    const settings = this.#settings;
    const { guard, maxConnections: most, nestedConnections: reserved } = settings;
    const forLocks = { guard, lockWait: Infinity, autocommit: false, most, reserved };
    return new RowLocks(
      settings,
      await connectToServer(settings, context, { forStatements: 3, forLocks, table: true }),
    );
  }
}

/** Row locks in a database that is connected. */
export class RowLocks implements SqlLocks {
  readonly counters: TokenCounters;

  constructor(
    readonly settings: RowLockSettings,
    readonly database: Database,
  ) {
    this.counters = new TokenCounters(database.table);
  }

  attempt({ key, holder }: Holder): RowAttempt {
    const { namespace } = this.database.context;
    const counter = this.settings.fencing ? counterNameOf(namespace, key) : undefined;
    return new RowAttempt(this, holder, rowNameOf(namespace, key), counter);
  }
}
