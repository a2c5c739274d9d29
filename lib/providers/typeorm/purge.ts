import { type Duration, toMilliseconds } from '../../lock/duration.js';
import { propertyOf } from './dialect.js';
import type { Sessions } from './sessions.js';
import { quotedTable, SERVER_TIME } from './table-layout.js';

/** Which rows of the lock table to delete. */
export interface PurgeOptions {
  /** For how long nobody has used them: 1 s to 24.8 days. */
  readonly unusedFor: Duration;
}

const ROWS_IN_A_BATCH = 500;

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
  let deleted = 0;
  for (let last = ''; ;) {
    const names = namesOf(await sessions.run(candidates, [last]));
    const next = names.at(-1);
    if (next === undefined) return deleted;
    last = next;
    const list = (of: readonly string[]) => of.map((_, index) => value(index + 1)).join(', ');
    const session = await sessions.take('', Infinity, undefined);
    try {
      await session.begin();
      const lock = `SELECT name FROM ${name} WHERE name IN (${list(names)}) AND ${unused} FOR UPDATE SKIP LOCKED`;
      const free = namesOf(await session.run(lock, names));
      if (free.length > 0) await session.run(`DELETE FROM ${name} WHERE name IN (${list(free)})`, free);
      await session.commit();
      session.giveBack();
      deleted += free.length;
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
