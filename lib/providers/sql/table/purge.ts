import { toMilliseconds } from '../../../api/duration.js';
import type { PurgeOptions } from '../../../api/purge-options.js';
import { firstRow, type Row, textOf } from '../connection/answer.js';
import type { Family } from '../connection/dialect.js';
import type { LockTable } from './lock-table.js';

// A statement reads at most this many rows, so it takes a few ms regardless of the table's size. An index on `expires`
// would be faster, but every acquire, renewal, and release would have to update it.
const ROWS_IN_A_PART = 5_000;
// How many rows one statement deletes, locking them for a few ms.
const ROWS_IN_A_BATCH = 100;

/**
 * The condition for rows that may be purged: all except fencing counters, whose last use isn't recorded, and the few
 * probe rows, which every startup reuses.
 */
export function isUnused({ now }: Family, unusedFor: number): string {
  return `name NOT LIKE '%#fence:%' AND name NOT LIKE '%#probe:%' AND expires <= ${now} - ${Math.ceil(unusedFor * 1000)}`;
}

/**
 * Deletes lock rows in a range of names (default: all) that have been unused for `unusedFor` (1 s to 24.8 days). Resolves to the
 * number deleted. Each statement is a separate transaction, so a process that freezes in between doesn't leave rows locked.
 *
 * Rows in use are never deleted: held or retained leases end in the future, and rows locked by any transaction
 * are skipped. Candidates are first read without locking, because a locking scan would make free keys look busy.
 *
 * @throws LockConfigError for an invalid `unusedFor`
 */
export async function purge(
  { name, family, run }: LockTable,
  { unusedFor }: PurgeOptions,
  // All names sort between these two.
  [begin, afterLast]: readonly [string, string] = ['', '\u007f'],
): Promise<number> {
  const [first, second] = [family.value(1), family.value(2)];
  const condition = isUnused(family, toMilliseconds(unusedFor, 'unusedFor', { min: 1_000 }));
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
