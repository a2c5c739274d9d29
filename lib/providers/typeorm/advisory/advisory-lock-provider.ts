import type { Holder, LockCapabilities, ProviderContext, Records } from '../../../api/lock-provider.js';
import { connectToServer, type Database } from '../database.js';
import { counterNameOf } from '../lock-name.js';
import { IS_READ_ONLY } from '../mysql-dialect.js';
import { readSessionOptions, type SessionLockSettings, type TypeOrmSessionLockOptions } from '../options.js';
import { type SqlLocks, SqlLockProvider } from '../sql-lock-provider.js';
import { AdvisoryAttempt } from './advisory-attempt.js';
import { type AdvisoryStatements, postgresAdvisoryLocks, userLocks } from './advisory-statements.js';
import { HoldingSessions } from './holding-sessions.js';

/** `table` and `synchronize` matter with `fencing` alone. `maxConnections` is 2 or more: one to hold on, one to wait on. */
export type TypeOrmAdvisoryLockProviderOptions = TypeOrmSessionLockOptions;

/**
 * Locks that the server keeps for a connection, without a table: `GET_LOCK` of MariaDB from 10.6 and MySQL from 8.0.1 on,
 * session-level advisory locks of Postgres from 14 on (those also shared).
 *
 * Promised: mutual exclusion while there is one server. A process that is frozen or cut off loses the lock when the session guard has
 * passed (default 30 s) and knows it by then; a process that dies loses it immediately. Waiters are served in the server's order.
 *
 * Locks that are free when they are asked for share one connection of our own; a waiter has another one for each key, and keeps the lock
 * there. When the connection of several locks is lost, all of them are. What breaks it: several writers (Galera, multi-primary: refused), a
 * failover, a pause between the last check and the write: use the token (`fencing`).
 */
export class TypeOrmAdvisoryLockProvider extends SqlLockProvider<AdvisoryLocks> {
  readonly capabilities: LockCapabilities;
  readonly records: Records = this.serverRecords;
  readonly #settings: SessionLockSettings;
  readonly #statements: AdvisoryStatements;

  /** @throws LockConfigError for options that cannot work. Connects to nothing: `start` does. */
  constructor(options: TypeOrmAdvisoryLockProviderOptions) {
    super();
    this.#settings = readSessionOptions('TypeOrmAdvisoryLockProvider', options, 2);
    this.#statements =
      this.#settings.database === 'mysql'
        ? userLocks(this.#settings.allowUnsafeTopology ? 'false' : IS_READ_ONLY)
        : postgresAdvisoryLocks;
    this.capabilities = {
      ...{ shared: this.#statements.hasShared, fair: false, fencing: this.#settings.fencing, lease: 'session' },
      ...{ minHold: false, forceRelease: false, queue: 'engine' },
    };
  }

  protected async connect(context: ProviderContext): Promise<AdvisoryLocks> {
    const settings = this.#settings;
    const { guard, fencing, maxConnections: most } = settings;
    const forLocks = { guard, lockWait: Infinity, autocommit: true, most, reserved: 0 };
    const database = await connectToServer(settings, context, { forStatements: 1, forLocks, table: fencing });
    try {
      return new AdvisoryLocks(
        settings,
        database,
        this.#statements,
        await this.#statements.scopeOf(database.statements.run),
      );
    } catch (error) {
      await database.close();
      throw error;
    }
  }
}

/** Advisory locks in a database that is connected. */
export class AdvisoryLocks implements SqlLocks {
  readonly sessions: HoldingSessions;

  constructor(
    readonly settings: SessionLockSettings,
    readonly database: Database,
    readonly statements: AdvisoryStatements,
    private readonly scope: string,
  ) {
    this.sessions = new HoldingSessions(database.sessions, statements, settings.maxConnections);
  }

  attempt({ key, holder, mode }: Holder): AdvisoryAttempt {
    const { namespace } = this.database.context;
    const counter = this.settings.fencing ? counterNameOf(namespace, key) : undefined;
    return new AdvisoryAttempt(this, holder, this.statements.nameOf(this.scope, namespace, key), mode, counter);
  }
}
