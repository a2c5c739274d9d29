import type { ProviderContext } from '../../../engine/lock-provider.js';
import { LockCapacityError } from '../../../lock/errors.js';
import { connect } from '../database.js';
import type { Run } from '../dialect.js';
import { LockTable } from '../lock-table.js';
import { purge } from '../purge.js';
import { SilentServerError } from '../session.js';
import type { LeaseDatabase } from './lease-database.js';
import { LeaseTable } from './lease-table.js';
import type { VersionLockSettings } from './version-lock-options.js';

// After how long without a statement a connection is made anew, in ms. It holds nothing, so nobody waits for its end.
const IDLE_TIME = 600_000;

/**
 * Leases on a database server, over a pool of our own.
 *
 * None of the application's connections: renewals would queue behind its transactions, which may wait for the very locks that
 * are to be renewed. Each statement has a connection for itself for as long as it runs; one that the server does not answer in
 * time is ended on the server too, where that can be.
 */
export async function connectToServer(
  { maxConnections, patience, ...settings }: VersionLockSettings & { database: 'mysql' | 'postgres' },
  context: ProviderContext,
): Promise<LeaseDatabase> {
  const terms = { guard: IDLE_TIME, patience, maxConnections };
  const server = await connect({ ...settings, terms }, context, true);
  const { dialect, sessions, weaknesses } = server;
  const { database, table } = settings;
  const run: Run = async (sql, parameters) => {
    const session = await sessions.take({ wait: patience }).catch((error: unknown) => {
      // Each connection is taken for the time of one statement: if none gets free, the server is silent.
      throw error instanceof LockCapacityError ? new SilentServerError(error.message) : error;
    });
    try {
      const answer = await session.run(sql, parameters);
      session.giveBack();
      return answer;
    } catch (error) {
      session.destroy();
      throw error;
    }
  };
  const rows = new LockTable(dialect, run);
  return {
    server,
    leases: new LeaseTable(database, table, run),
    createRow: (name) => rows.createRow(name),
    purge: (unusedFor) => purge(sessions, database, table, unusedFor),
    isBusy: (error) => ['busy', 'rolled-back'].includes(dialect.classify(error)),
    check: () => Promise.resolve(weaknesses),
    close: () => sessions.close(),
  };
}
