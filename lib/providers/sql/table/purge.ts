import { toMilliseconds } from '../../../api/duration.js';
import type { PurgeOptions } from '../../../api/purge-options.js';
import { firstRow, type Row, textOf } from '../connection/answer.js';
import type { Family } from '../connection/dialect.js';
import type { LockTable } from './lock-table.js';

// A statement reads this many rows of the table, so it takes a few ms however large the table is. An index on `expires` would be faster, and
// each lease that is taken, renewed or released would have to write it.
const ROWS_IN_A_PART = 5_000;
// In one statement, which keeps them locked for some ms.
const ROWS_IN_A_BATCH = 100;

/**
 * The condition of rows that a purge may delete: all but the counters of fencing tokens, whose time of use is not written, and the few
 * rows of probes, which each start uses again.
 */
export function isUnused({ now }: Family, unusedFor: number): string {
  return `name NOT LIKE '%#fence:%' AND name NOT LIKE '%#probe:%' AND expires <= ${now} - ${Math.ceil(unusedFor * 1000)}`;
}

/** @throws LockConfigError */
export function readUnusedFor({ unusedFor }: PurgeOptions): number {
  return toMilliseconds(unusedFor, 'unusedFor', { min: 1_000 });
}

/**
 * Deletes the rows of locks between two names, by default all, that no process has used for `unusedFor` ms, and resolves to their number. Each
 * statement is a transaction of its own, so a process that is frozen meanwhile keeps nothing locked.
 *
 * A row that is held is never deleted: a lease that is held or retained ends in the future; a row lock's row is skipped if any
 * transaction has it. The candidates are read without locks first, since a scan that locks would make free keys look busy.
 */
export async function purge(
  { name, family, run }: LockTable,
  unusedFor: number,
  // The characters of all names come between these.
  [begin, afterLast]: readonly [string, string] = ['', '\u007f'],
): Promise<number> {
  const [first, second] = [family.value(1), family.value(2)];
  const condition = isUnused(family, unusedFor);
  const part = `SELECT name FROM ${name} WHERE name > ${first} AND name < ${second} ORDER BY name LIMIT ${ROWS_IN_A_PART}`;
  const endOfPart = `SELECT MAX(name) AS name FROM (${part}) AS part`;
  const candidates = `SELECT name FROM ${name} WHERE name > ${first} AND name <= ${second} AND ${condition}`;
  let deleted = 0;
  for (let from = begin; ;) {
    const to = textOf(firstRow(await run(endOfPart, [from, afterLast]))?.['name']);
    if (to === undefined) return deleted;
    const unused = (await run(candidates, [from, to])) as readonly Row[];
    const names = unused.map(({ name }) => textOf(name));
    for (let at = 0; at < names.length; at += ROWS_IN_A_BATCH) {
      const batch = names.slice(at, at + ROWS_IN_A_BATCH);
      const statement = family.deleteUnlocked(name, condition, batch.length);
      deleted += family.changed(await run(statement, family.list(batch)));
    }
    from = to;
  }
}
