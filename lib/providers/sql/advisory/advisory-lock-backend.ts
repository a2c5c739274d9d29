import type { AcquireRequest, BackendContext, LockCapabilities } from '../../../api/lock-provider.js';
import { connectToServer } from '../database.js';
import { capabilitiesOf, refuseList } from '../session-locks.js';
import { SqlBackend } from '../sql-backend.js';
import { AdvisoryRequest, type AdvisoryDatabase } from './advisory-request.js';
import { HoldingSessions, lockPlaces } from './holding-sessions.js';

/** The advisory locks of one application. */
export class AdvisoryLockBackend extends SqlBackend<AdvisoryDatabase> {
  readonly capabilities: LockCapabilities = capabilitiesOf(this.settings, this.settings.source.database === 'postgres');

  list(): never {
    return refuseList(this.context, this.settings.family.views.advisory);
  }

  protected async open(): Promise<AdvisoryDatabase> {
    const { sessionGuard: guard, fencing, maxConnections: most, family } = this.settings;
    const forLocks = { guard, lockWait: Infinity, autocommit: true, most, reserved: 0 };
    const database = await connectToServer(this.settings, this.context, { forStatements: 1, forLocks, table: fencing });
    try {
      const { advisory } = family;
      const scope = await advisory.scopeOf(database.run);
      const { lockTable } = (await database.server.control()).facts;
      const places = lockTable === undefined ? undefined : lockPlaces(this.context, lockTable);
      const holding = new HoldingSessions(database.sessions, advisory, most, places);
      return { ...database, scope, holding };
    } catch (error) {
      await database.close();
      throw error;
    }
  }

  protected requestFor(database: AdvisoryDatabase, request: AcquireRequest, context: BackendContext): AdvisoryRequest {
    return new AdvisoryRequest(context, database, this.settings, request);
  }
}
