import { type Duration, toMilliseconds } from '../../lock/duration.js';
import { propertyOf } from './dialect.js';
import type { Sessions } from './sessions.js';
import { quotedTable, SERVER_TIME } from './table-layout.js';

/** Which rows of the lock table to delete. */
export interface PurgeOptions {
  /** For how long nobody has used them: 1 s to 24.8 days. */
  readonly unusedFor: Duration;
}

// In one transaction, which keeps them locked for some ten ms.
const ROWS_IN_A_BATCH = 100;

/** Which rows a purge may delete: all but the counters of fencing tokens, whose time of use nobody writes. */
export const PURGEABLE = `name NOT LIKE '%#fence:%'`;

/** @throws LockConfigError */
export function readUnusedFor({ unusedFor }: PurgeOptions): number {
  return toMilliseconds(unusedFor, 'unusedFor', { min: 1_000 });
}

/**
 * Deletes the rows of locks that nobody has used for `unusedFor` ms, and answers how many.
 *
 * A row that is held is never deleted: a lease that is held or parked ends in the future; a row lock's row is skipped if any
 * transaction has it, and stays locked by ours until it is gone. The candidates are read without locks first, since a scan
 * that locks would make free keys look busy.
 */
export async function purge(
  sessions: Sessions,
  database: 'mysql' | 'postgres',
  table: string,
  unusedFor: number,
): Promise<number> {
  const name = quotedTable(database, table);
  const value = (position: number) => (database === 'mysql' ? '?' : `$${position}`);
  const unused = `${PURGEABLE} AND expires <= ${SERVER_TIME[database]} - ${Math.ceil(unusedFor * 1000)}`;
  const candidates = `SELECT name FROM ${name} WHERE name > ${value(1)} AND ${unused} ORDER BY name LIMIT ${ROWS_IN_A_BATCH}`;
  // One by one: for a list of names a server may scan the whole table (measured on MariaDB 10.11), lock rows that are not meant,
  // and wait for those that somebody holds.
  const lock = `SELECT name FROM ${name} WHERE name = ${value(1)} AND ${unused} FOR UPDATE SKIP LOCKED`;
  const remove = `DELETE FROM ${name} WHERE name = ${value(1)}`;
  let deleted = 0;
  for (let last = ''; ;) {
    const names = namesOf(await sessions.run(candidates, [last]));
    const next = names.at(-1);
    if (next === undefined) return deleted;
    last = next;
    const session = await sessions.take({ wait: sessions.patience });
    try {
      await session.begin();
      let free = 0;
      for (const row of names) {
        if (namesOf(await session.run(lock, [row])).length === 0) continue;
        await session.run(remove, [row]);
        free += 1;
      }
      await session.commit();
      session.giveBack();
      deleted += free;
    } catch (error) {
      session.destroy();
      throw error;
    }
  }
}

function namesOf(rows: unknown): string[] {
  // A VARBINARY comes as a Buffer.
  return (rows as readonly object[]).map((row) => String(propertyOf(row, 'name') as string | Buffer));
}
