import { type Duration, toMilliseconds } from '../../../api/duration.js';
import { firstRow, propertyOf, type Run, textOf } from '../connection/answer.js';
import type { Database } from '../database.js';
import type { Family } from './family.js';

/** The rows of the lock table to delete. */
export interface PurgeOptions {
  /** How long the rows to delete have not been used: 1 s to 24.8 days. */
  readonly unusedFor: Duration;
}

// A statement reads this many rows of the table, so it takes a few ms however large the table is. An index on `expires` would be faster, and
// each lease that is taken, renewed or released would have to write it.
const ROWS_IN_A_PART = 5_000;
// In one transaction, which keeps them locked for some ten ms.
const ROWS_IN_A_BATCH = 100;

/** The condition of rows that a purge may delete: all but the counters of fencing tokens, whose time of use is not written. */
export function isUnused({ now }: Family, unusedFor: number): string {
  return `name NOT LIKE '%#fence:%' AND expires <= ${now} - ${Math.ceil(unusedFor * 1000)}`;
}

/** @throws LockConfigError */
export function readUnusedFor({ unusedFor }: PurgeOptions): number {
  return toMilliseconds(unusedFor, 'unusedFor', { min: 1_000 });
}

/** Names of rows: those between these two. */
export type NameRange = readonly [string, string];

// The characters of all names come between them.
export const ALL_NAMES: NameRange = ['', '\u007f'];

/**
 * Deletes the rows of locks in `range` that nobody has used for `unusedFor` ms, and resolves to their number. It has a connection of its own.
 *
 * A row that is held is never deleted: a lease that is held or retained ends in the future; a row lock's row is skipped if any
 * transaction has it, and stays locked by ours until it is gone. The candidates are read without locks first, since a scan
 * that locks would make free keys look busy.
 */
export async function purge(
  { server, table }: Database,
  unusedFor: number,
  [begin, afterLast] = ALL_NAMES,
): Promise<number> {
  const { name, family } = table;
  const [first, second] = [family.value(1), family.value(2)];
  const unused = isUnused(family, unusedFor);
  const part = `SELECT name FROM ${name} WHERE name > ${first} AND name < ${second} ORDER BY name LIMIT ${ROWS_IN_A_PART}`;
  const endOfPart = `SELECT MAX(name) AS name FROM (${part}) AS part`;
  const candidates = `SELECT name FROM ${name} WHERE name > ${first} AND name <= ${second} AND ${unused}`;
  const session = await server.open({ guard: 600_000, lockWait: 1_000, autocommit: true });
  try {
    let deleted = 0;
    for (let from = begin; ;) {
      const to = nameOf(firstRow(await session.run(endOfPart, [from, afterLast])));
      if (to === undefined) break;
      const names = ((await session.run(candidates, [from, to])) as readonly object[]).map((row) => nameOf(row) ?? '');
      for (let at = 0; at < names.length; at += ROWS_IN_A_BATCH) {
        await session.begin();
        deleted += await remove(session.run, table, unused, names.slice(at, at + ROWS_IN_A_BATCH));
        await session.commit();
      }
      from = to;
    }
    await session.close();
    return deleted;
  } catch (error) {
    session.destroy();
    throw error;
  }
}

/**
 * One by one: for a list of names a server may scan the whole table (measured on MariaDB 10.11), lock other rows,
 * and wait for rows that are held.
 */
async function remove(run: Run, { name, family }: Database['table'], unused: string, rows: readonly string[]) {
  const isRow = `name = ${family.value(1)}`;
  let removed = 0;
  for (const row of rows) {
    if (!firstRow(await run(`SELECT name FROM ${name} WHERE ${isRow} AND ${unused} FOR UPDATE SKIP LOCKED`, [row])))
      continue;
    await run(`DELETE FROM ${name} WHERE ${isRow}`, [row]);
    removed += 1;
  }
  return removed;
}

function nameOf(row: unknown): string | undefined {
  return textOf(propertyOf(row, 'name'));
}
