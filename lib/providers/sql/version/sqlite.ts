import type { BackendContext } from '../../../api/lock-provider.js';
import { backOff, pause } from '../../../core/toolkit/timing.js';
import { propertyOf, type Run } from '../connection/answer.js';
import type { DatabaseSettings } from '../options.js';
import type { SqliteSource } from '../sources/source.js';
import { ALL_NAMES, isUnused } from '../table/purge.js';
import { LeaseTable } from './lease-table.js';
import { LimitedLeases } from './limited-leases.js';
import type { LeaseDatabase } from './version-request.js';

// How long before a database that is locked is asked again.
const PAUSE = { first: 10, most: 10 };

/**
 * Leases in SQLite: a file that several processes of one machine have open (better-sqlite3), or the memory of one process
 * (sql.js).
 *
 * A statement of ours never joins a transaction of the application, with which it would be rolled back. A file gets a connection of
 * our own. The one connection of sql.js is shared with the application; there BEGIN fails if a transaction is open, because SQLite has
 * no nested transactions. And as sql.js answers before it returns, no other statement comes between that BEGIN and our COMMIT. In both cases a
 * transaction that writes keeps us waiting until it has ended.
 */
export async function connectToSqlite(
  { source, table, synchronize, statementTimeout }: DatabaseSettings<SqliteSource>,
  { clock, random, name }: BackendContext,
): Promise<LeaseDatabase> {
  const closing = new AbortController();
  const onceUnlocked = async <T>(work: () => T | Promise<T>): Promise<T> => {
    const giveUpAt = clock.now() + statementTimeout;
    for (;;) {
      closing.signal.throwIfAborted();
      try {
        return await work();
      } catch (error) {
        if (!isLocked(error) || clock.now() >= giveUpAt) throw error;
      }
      // A process does not end in the middle of an operation; on a server its socket would keep it.
      await pause(clock, backOff(random, 0, PAUSE), closing.signal, true);
    }
  };
  const connection = await onceUnlocked(() => source.open());
  const run: Run = (sql, parameters = []) => onceUnlocked(() => connection.runNow(sql, parameters.map(toSqlite)));
  const close = async () => {
    if (closing.signal.aborted) return;
    closing.abort(new Error('The locks are closed, because the application stops.'));
    await connection.close();
  };
  const leases = new LeaseTable('sqlite', table, run, 1);
  try {
    await leases.prepare(synchronize, name);
  } catch (error) {
    await close();
    throw error;
  }
  return {
    run,
    table: leases,
    leases,
    limited: new LimitedLeases(leases),
    async purge(unusedFor, range = ALL_NAMES) {
      const { name, family } = leases;
      const sql = `DELETE FROM ${name} WHERE name > ? AND name < ? AND ${isUnused(family, unusedFor)}`;
      return family.changed(await run(sql, range));
    },
    diagnose: () => [],
    close,
  };
}

// Versions and times are far below 2^53 until the year 2255.
function toSqlite(value: unknown): string | number | null {
  return typeof value === 'bigint' ? Number(value) : (value as string | number | null);
}

/** Another transaction has the database, of another connection or, with sql.js, of the application on the same one. */
function isLocked(error: unknown): boolean {
  const code = propertyOf(error, 'code');
  if (typeof code === 'string' && /^SQLITE_(BUSY|LOCKED)/.test(code)) return true;
  return error instanceof Error && /within a transaction|database (table )?is locked/.test(error.message);
}
