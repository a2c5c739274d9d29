import { LockConfigError } from '../../../api/errors.js';
import type { AcquireRequest, BackendContext, CasStore, LockCapabilities } from '../../../api/lock-provider.js';
import { SqlCasStore } from '../table/cas-store.js';
import { connectToServer } from '../database.js';
import { IS_READ_ONLY } from '../connection/mysql-dialect.js';
import type { SessionLockSettings } from '../options.js';
import { SqlBackend } from '../sql-backend.js';
import { AdvisoryAttempt, type AdvisoryDatabase } from './advisory-attempt.js';
import { type AdvisoryStatements, postgresAdvisoryLocks, userLocks } from './advisory-statements.js';
import { HoldingSessions } from './holding-sessions.js';

/** The advisory locks of one application. */
export class AdvisoryLockBackend extends SqlBackend<AdvisoryDatabase> {
  readonly capabilities: LockCapabilities;
  readonly casStore: CasStore;
  readonly #statements: AdvisoryStatements;

  constructor(
    context: BackendContext,
    private readonly settings: SessionLockSettings,
  ) {
    super(context);
    const { source, allowUnsafeTopology, fencing } = settings;
    this.#statements =
      source.database === 'mysql' ? userLocks(allowUnsafeTopology ? 'false' : IS_READ_ONLY) : postgresAdvisoryLocks;
    this.capabilities = {
      shared: this.#statements.hasShared,
      fair: false,
      fencing,
      lease: 'session',
      minHold: false,
      forceRelease: false,
    };
    this.casStore = new SqlCasStore(settings, context, () => this.database());
  }

  /** @throws LockConfigError always: the name of such a lock is a hash, in which the database cannot look for a namespace */
  list(): never {
    const views =
      this.settings.source.database === 'mysql'
        ? 'performance_schema.metadata_locks (MySQL), information_schema.metadata_lock_info (MariaDB)'
        : "pg_locks where locktype = 'advisory'";
    throw new LockConfigError(
      `Lock provider "${this.context.name}" cannot list its locks. An advisory lock belongs to a session, and its name in the database is a hash of its key. Look at the views of the database: ${views}.`,
      { provider: this.context.name },
    );
  }

  protected async open(): Promise<AdvisoryDatabase> {
    const { guard, fencing, maxConnections: most } = this.settings;
    const forLocks = { guard, lockWait: Infinity, autocommit: true, most, reserved: 0 };
    const database = await connectToServer(this.settings, this.context, { forStatements: 1, forLocks, table: fencing });
    const advisory = this.#statements;
    try {
      const scope = await advisory.scopeOf(database.run);
      return { ...database, advisory, scope, holding: new HoldingSessions(database.sessions, advisory, most) };
    } catch (error) {
      await database.close();
      throw error;
    }
  }

  protected attempt(database: AdvisoryDatabase, request: AcquireRequest): AdvisoryAttempt {
    return new AdvisoryAttempt(database, this.settings, request);
  }
}
