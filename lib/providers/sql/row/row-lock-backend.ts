import type { AcquireRequest, BackendContext, LockCapabilities } from '../../../api/lock-provider.js';
import type { PurgeOptions } from '../../../api/purge-options.js';
import { connectToServer, type Database } from '../database.js';
import { purge, readUnusedFor } from '../table/purge.js';
import { capabilitiesOf, refuseList } from '../session-locks.js';
import { SqlBackend } from '../sql-backend.js';
import type { LendTransaction } from './lent-transaction.js';
import { RowRequest } from './row-request.js';
import type { SqlSettings } from '../options.js';

/** The row locks of one application. */
export class RowLockBackend extends SqlBackend<Database> {
  // On Postgres readers pass a writer that waits for the row, which would starve.
  readonly capabilities: LockCapabilities = capabilitiesOf(this.settings, this.settings.source.database === 'mysql');

  constructor(
    context: BackendContext,
    settings: SqlSettings,
    private readonly lend: LendTransaction,
  ) {
    super(context, settings);
  }

  list(): never {
    return refuseList(this.context, this.settings.family.views.row);
  }

  /**
   * Deletes the rows that were created more than `unusedFor` ago (1 s to 24.8 days) and that nobody holds; a row lock leaves no
   * trace of its use in its row. Also deletes the rows of leases in the same table that ended so long ago. Answers how many. A key that
   * is used again costs one more statement the first time, and while its row goes an attempt that does not wait may find it busy.
   */
  async purge(options: PurgeOptions): Promise<number> {
    const unusedFor = readUnusedFor(options);
    return this.operate('purge()', (database) => purge(database, unusedFor));
  }

  protected open(): Promise<Database> {
    const {
      sessionGuard: guard,
      maxConnections: most,
      nestedConnections: reserved,
      connectionInitSql: initSql,
    } = this.settings;
    const forLocks = { guard, lockWait: Infinity, autocommit: false, initSql, most, reserved };
    return connectToServer(this.settings, this.context, { forStatements: 3, forLocks, table: true });
  }

  protected requestFor(database: Database, request: AcquireRequest, context: BackendContext): RowRequest {
    return new RowRequest(context, database, this.settings, this.lend, request);
  }
}
