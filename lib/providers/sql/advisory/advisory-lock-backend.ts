import type { AcquireRequest, BackendContext } from '../../../api/lock-provider.js';
import { connectToServer } from '../database.js';
import type { SqlSettings } from '../options.js';
import { SessionLockBackend } from '../session-lock-backend.js';
import { AdvisoryRequest, type AdvisoryDatabase } from './advisory-request.js';
import { postgresAdvisoryLocks, userLocks } from './advisory-statements.js';
import { HoldingSessions, lockPlaces } from './holding-sessions.js';

const VIEWS = {
  mysql: 'performance_schema.metadata_locks (MySQL), information_schema.metadata_lock_info (MariaDB)',
  postgres: "pg_locks where locktype = 'advisory'",
};

/** The advisory locks of one application. */
export class AdvisoryLockBackend extends SessionLockBackend<AdvisoryDatabase, SqlSettings> {
  constructor(context: BackendContext, settings: SqlSettings) {
    const { database } = settings.source;
    super(context, settings, database === 'postgres', VIEWS[database]);
  }

  protected async open(): Promise<AdvisoryDatabase> {
    const { sessionGuard: guard, fencing, maxConnections: most, source } = this.settings;
    const forLocks = { guard, lockWait: Infinity, autocommit: true, most, reserved: 0 };
    const database = await connectToServer(this.settings, this.context, { forStatements: 1, forLocks, table: fencing });
    const advisory = source.database === 'mysql' ? userLocks : postgresAdvisoryLocks;
    try {
      const scope = await advisory.scopeOf(database.run);
      const { lockTable } = (await database.server.control()).facts;
      const places = lockTable === undefined ? undefined : lockPlaces(this.context, lockTable);
      const holding = new HoldingSessions(database.sessions, advisory, most, places);
      return { ...database, advisory, scope, holding };
    } catch (error) {
      await database.close();
      throw error;
    }
  }

  protected requestFor(database: AdvisoryDatabase, request: AcquireRequest): AdvisoryRequest {
    return new AdvisoryRequest(database, this.settings, request);
  }
}
