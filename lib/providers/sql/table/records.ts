import { LockConfigError } from '../../../api/errors.js';
import type { BackendContext, RecordStore, StoredRecord } from '../../../api/lock-provider.js';
import { firstRow, textOf } from '../connection/answer.js';
import { entryLabelOf, entryNameOf, labelOf, type RecordKind, textOfLabel } from './lock-name.js';
import { entriesOf, type LockTable } from './lock-table.js';

const DAY = 86_400_000_000;
/**
 * How long a record is safe from purges after its last write, in µs. A yearly job's last run must survive, and a
 * failover that lost its epoch would restart its fencing tokens.
 */
const KEEP: Readonly<Record<RecordKind, number>> = { run: 400 * DAY, failover: 36_500 * DAY };

/**
 * The records of one kind in a namespace: rows of the lock table, with the text in the `holders` column. A row without
 * text is not a record yet.
 *
 * This is linearizable: each change is a single autocommit statement on one row of a single writer. Changes are
 * therefore ordered by the row lock, and each takes effect between its request and its response. Under READ COMMITTED,
 * a statement compares against the last committed text, and again after waiting for the row. The text is ASCII, which
 * every collation compares byte by byte. Every change alters the row, because `expires` always grows. Otherwise, MySQL
 * would skip an UPDATE that sets equal values, which a former writer could then confirm without writing. If the text is
 * already `next`, it is written again, so only a failed comparison leads to a read. If a statement gets no response,
 * its outcome is unknown. `token` holds the write time, because every database returns an UPDATE's new token.
 *
 * Advisory locks don't need the table, so it's checked or created only for the first record.
 */
export class SqlRecords implements RecordStore {
  constructor(
    private readonly context: BackendContext,
    private readonly kind: RecordKind,
    private readonly withTable: <T>(what: string, work: (table: LockTable) => Promise<T>) => Promise<T>,
  ) {}

  read(name: string): Promise<StoredRecord> {
    return this.withTable(`Record "${name}"`, (table) => read(table, this.#rowOf(name)));
  }

  replace(name: string, expected: string | null, next: string): Promise<StoredRecord> {
    return this.withTable(`Record "${name}"`, async (table) => {
      const row = this.#rowOf(name);
      for (;;) {
        const serverTime = await this.#write(table, row, expected, next);
        if (serverTime !== undefined) return { value: next, serverTime };
        const found = await read(table, row);
        if (found.value === null && expected === null) {
          await table.ensureRow('rows of records', row, entryLabelOf(name));
        } else if (found.value !== expected && found.value !== next) return found; // otherwise, the text has since changed back
      }
    });
  }

  async *list(): AsyncGenerator<{ readonly name: string; readonly value: string }> {
    const readFrom = (from: string) => this.withTable('The list of records', (table) => table.page(from));
    for await (const entries of entriesOf(this.context.namespace, this.kind, '', readFrom)) {
      for (const { key, row } of entries) {
        if (row.holders !== null) yield { name: key, value: decode(row.name.toString(), row.holders.toString()) };
      }
    }
  }

  /**
   * Writes the record if it contains `expected`, or already contains `next`. Resolves to the time of the write, or to
   * undefined if it contains something else or the row is missing.
   */
  async #write(table: LockTable, row: string, expected: string | null, next: string): Promise<number | undefined> {
    const { value, now, updateToken, tokenOf } = table.family;
    const condition = expected === null ? 'holders IS NULL' : `holders = ${value(5)}`;
    const rest =
      `, holders = ${value(1)}, expires = GREATEST(expires + 1, ${now} + ${value(2)}) ` +
      `WHERE name = ${value(3)} AND (holders = ${value(4)} OR ${condition})`;
    const text = labelOf(next);
    const values = [text, KEEP[this.kind], row, text, ...(expected === null ? [] : [labelOf(expected)])];
    const token = tokenOf(await table.run(updateToken(table.name, now, rest), values));
    return token === undefined ? undefined : Number(token) / 1_000;
  }

  #rowOf(name: string): string {
    return entryNameOf(this.context.namespace, this.kind, name);
  }
}

async function read({ family, name, run }: LockTable, row: string): Promise<StoredRecord> {
  // Select one row so the time is returned even if there's no record.
  const select = `SELECT (SELECT holders FROM ${name} WHERE name = ${family.value(1)}) AS value, ${family.now} AS server_time`;
  const answer = firstRow(await run(select, [row]));
  const text = textOf(answer?.['value']);
  return { value: text === undefined ? null : decode(row, text), serverTime: Number(answer?.['server_time']) / 1_000 };
}

function decode(row: string, text: string): string {
  const value = textOfLabel(text);
  if (value !== undefined) return value;
  throw new LockConfigError(`Row "${row}" in the lock table is not a record written by this package. Delete the row.`);
}
