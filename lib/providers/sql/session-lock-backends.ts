import { LockConfigError } from '../../api/errors.js';
import type { AcquireRequest, BackendContext, LockCapabilities } from '../../api/lock-provider.js';
import type { PurgeOptions } from '../../api/purge-options.js';
import { type AdvisoryDatabase, AdvisoryRequest } from './advisory/advisory-request.js';
import { HoldingSessions, lockPlaces } from './advisory/holding-sessions.js';
import type { SqlSettings } from './options.js';
import { type LendTransaction, LentTransaction } from './row/lent-transaction.js';
import { RowRequest } from './row/row-request.js';
import { type Database, SqlBackend } from './sql-backend.js';

/*
 * Row locks and advisory locks belong to a server session. These backends only connect and create requests.
 */

/** One application's row locks. */
export class RowLockBackend extends SqlBackend<Database> {
  // On Postgres, readers would overtake waiting writers and could starve them.
  readonly capabilities: LockCapabilities = capabilitiesOf(this.settings, this.settings.source.database === 'mysql');

  constructor(
    context: BackendContext,
    settings: SqlSettings,
    private readonly lend: LendTransaction = (session, holder) => new LentTransaction(session, holder),
  ) {
    super(context, settings);
  }

  list(): never {
    return refuseList(this.context, this.settings.family.views.row);
  }

  /**
   * Deletes rows that were created more than `unusedFor` ago (1 s to 24.8 days) and aren't locked. A row lock's last
   * use isn't recorded, so its creation time is used. Also deletes rows in the same table whose leases ended that long
   * ago. Returns the number of deleted rows. If a deleted key is used again, the first lock costs one more statement,
   * and an attempt that doesn't wait may find the key busy while its row is being deleted.
   */
  purge(options: PurgeOptions): Promise<number> {
    return this.operate('purge()', ({ table }) => table.purge(options));
  }

  protected open(): Promise<Database> {
    const { nestedConnections: reserved, connectionInitSql: initSql } = this.settings;
    const needs = { forStatements: 3, forLocks: { autocommit: false, initSql, reserved }, table: true };
    return this.connectToServer(needs, (database) => database);
  }

  protected requestFor(database: Database, request: AcquireRequest, context: BackendContext): RowRequest {
    return new RowRequest(context, database, this.lend, request);
  }
}

/** One application's advisory locks. */
export class AdvisoryLockBackend extends SqlBackend<AdvisoryDatabase> {
  readonly capabilities: LockCapabilities = capabilitiesOf(this.settings, this.settings.source.database === 'postgres');

  list(): never {
    return refuseList(this.context, this.settings.family.views.advisory);
  }

  protected open(): Promise<AdvisoryDatabase> {
    const { settings, context } = this;
    const needs = { forStatements: 1, forLocks: { autocommit: true, reserved: 0 }, table: settings.fencing };
    return this.connectToServer(needs, async (database, { lockTable }) => {
      const { advisory } = settings.family;
      const places = lockTable === undefined ? undefined : lockPlaces(context, lockTable);
      const holding = new HoldingSessions(database.sessions, advisory, settings.maxConnections, places);
      return { ...database, scope: await advisory.scopeOf(database.run), holding };
    });
  }

  protected requestFor(database: AdvisoryDatabase, request: AcquireRequest, context: BackendContext): AdvisoryRequest {
    return new AdvisoryRequest(context, database, request);
  }
}

function capabilitiesOf({ fencing }: SqlSettings, shared: boolean): LockCapabilities {
  return { shared, fair: false, fencing, lease: 'session', minHold: false, forceRelease: false };
}

/**
 * @param views the database views that show such locks to operators
 * @throws LockConfigError always, because the database shows sessions, rows, and hashes, but not a namespace's keys
 */
function refuseList({ name: provider }: BackendContext, views: string): never {
  throw new LockConfigError(
    `Lock provider "${provider}" cannot list its locks. They belong to database sessions, which do not expose lock keys. Query these views instead: ${views}.`,
    { provider },
  );
}
