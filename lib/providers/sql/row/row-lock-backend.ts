import type { AcquireRequest, BackendContext } from '../../../api/lock-provider.js';
import type { PurgeOptions } from '../../../api/purge-options.js';
import { connectToServer } from '../database.js';
import { purge, readUnusedFor } from '../table/purge.js';
import { SessionLockBackend } from '../session-lock-backend.js';
import { TokenCounters } from '../table/token-counters.js';
import type { LendTransaction } from './lent-transaction.js';
import { RowRequest, type RowDatabase } from './row-request.js';
import type { SqlSettings } from '../options.js';

const VIEWS = {
  mysql: 'performance_schema.data_locks (MySQL), information_schema.innodb_trx (MariaDB)',
  postgres: 'pg_locks and pg_stat_activity',
};

/** The row locks of one application. */
export class RowLockBackend extends SessionLockBackend<RowDatabase, SqlSettings> {
  constructor(
    context: BackendContext,
    settings: SqlSettings,
    private readonly lend: LendTransaction,
  ) {
    const { database } = settings.source;
    // On Postgres readers pass a writer that waits for the row, which would starve.
    super(context, settings, database === 'mysql', VIEWS[database]);
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

  protected async open(): Promise<RowDatabase> {
    const {
      sessionGuard: guard,
      maxConnections: most,
      nestedConnections: reserved,
      connectionInitSql: initSql,
    } = this.settings;
    const forLocks = { guard, lockWait: Infinity, autocommit: false, initSql, most, reserved };
    const database = await connectToServer(this.settings, this.context, { forStatements: 3, forLocks, table: true });
    return { ...database, counters: new TokenCounters(database.table) };
  }

  protected requestFor(database: RowDatabase, request: AcquireRequest): RowRequest {
    return new RowRequest(database, this.settings, this.lend, request);
  }
}
