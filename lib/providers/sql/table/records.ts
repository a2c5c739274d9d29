import { LockConfigError } from '../../../api/errors.js';
import type { BackendContext, RecordStore, StoredRecord } from '../../../api/lock-provider.js';
import { firstRow, type Run, textOf } from '../connection/answer.js';
import { lockErrorOf } from '../connection/failure.js';
import type { DatabaseSettings } from '../options.js';
import { leaseLabelOf, labelOf, nameOfRecord, recordNameOf, recordNamesOf, textOfLabel } from './lock-name.js';
import { LockTable, withTable } from './lock-table.js';

/** For how long no purge may delete a record after its last write, in µs: 400 days, so that a job that runs once a year is remembered. */
const KEEP = 400 * 86_400_000_000;
/** Records that are read for a list in one statement. */
const PAGE = 100;

/**
 * The records of a namespace: rows in the table of the locks, with the text in the column `holders`. A row without one is no record yet.
 *
 * Each change is one statement of autocommit on one row, so changes have the order in which the row was locked, and a statement that had
 * to wait for the row compares again after the wait. Texts are ASCII, which every collation compares byte by byte. `token` is the time
 * of the write, because every database answers an UPDATE with the new token. No change is empty, because `expires` grows: MySQL would
 * write nothing, and a server that is no longer the writer could confirm it.
 *
 * Advisory locks need no table. So it is looked for, or created, at the first record.
 */
export class SqlRecords implements RecordStore {
  #table: Promise<LockTable> | undefined;

  constructor(
    private readonly settings: DatabaseSettings,
    private readonly context: BackendContext,
    private readonly connect: () => Promise<{ readonly run: Run }>,
  ) {}

  read(name: string): Promise<StoredRecord> {
    return this.#operate(`Record "${name}"`, (table) => read(table, recordNameOf(this.context.namespace, name)));
  }

  replace(name: string, expected: string | null, next: string): Promise<StoredRecord> {
    return this.#operate(`Record "${name}"`, async (table) => {
      const row = recordNameOf(this.context.namespace, name);
      for (;;) {
        const serverTime = await write(table, row, expected, next);
        if (serverTime !== undefined) return { value: next, serverTime };
        const found = await read(table, row);
        if (found.value === null && expected === null) await create(table, row, name);
        // Otherwise it has changed back since.
        else if (found.value !== expected && found.value !== next) return found;
      }
    });
  }

  async *list(): AsyncGenerator<{ readonly name: string; readonly value: string }> {
    const { namespace } = this.context;
    const [first, end] = recordNamesOf(namespace);
    for (let from = first; ;) {
      const after = from;
      const page = await this.#operate('The list of records', (table) => readPage(table, after));
      const rows = page.filter(({ row }) => row < end);
      for (const { row, label, text } of rows) {
        if (text !== undefined) yield { name: nameOfRecord(namespace, row, label), value: decode(row, text) };
      }
      const last = rows.at(-1);
      if (!last) return;
      from = last.row;
    }
  }

  async #operate<T>(what: string, work: (table: LockTable) => Promise<T>): Promise<T> {
    const { run } = await this.connect();
    try {
      const table = await this.#prepared(run);
      return await withTable(
        () => work(table),
        () => table.restore(this.settings.synchronize, this.context.name),
      );
    } catch (error) {
      throw lockErrorOf(error, what, { provider: this.context.name });
    }
  }

  #prepared(run: Run): Promise<LockTable> {
    this.#table ??= this.#prepare(run).catch((error: unknown) => {
      this.#table = undefined;
      throw error;
    });
    return this.#table;
  }

  async #prepare(run: Run): Promise<LockTable> {
    const { source, family, table: name, synchronize } = this.settings;
    const table = new LockTable(source.database, name, family, run);
    await table.prepare(synchronize, this.context.name);
    return table;
  }
}

/** Creates a row without a text. */
async function create(table: LockTable, row: string, name: string): Promise<void> {
  if (!(await table.createRow(row, leaseLabelOf(name))))
    throw new Error('A transaction has locked the rows of records.');
}

async function read({ family, name, run }: LockTable, row: string): Promise<StoredRecord> {
  // One row, whether there is a record or not: with the time.
  const select = `SELECT (SELECT holders FROM ${name} WHERE name = ${family.value(1)}) AS value, ${family.now} AS server_time`;
  const answer = firstRow(await run(select, [row]));
  const text = textOf(answer?.['value']);
  return { value: text === undefined ? null : decode(row, text), serverTime: toMilliseconds(answer?.['server_time']) };
}

/** Writes it over what is expected, or over the same. Answers when; undefined where there was something else, or no row. */
async function write(
  table: LockTable,
  row: string,
  expected: string | null,
  next: string,
): Promise<number | undefined> {
  const { value, now, greatest, updateToken, tokenOf } = table.family;
  const condition = expected === null ? 'holders IS NULL' : `holders = ${value(5)}`;
  const rest =
    `, holders = ${value(1)}, expires = ${greatest}(expires + 1, ${now} + ${value(2)}) ` +
    `WHERE name = ${value(3)} AND (holders = ${value(4)} OR ${condition})`;
  const text = labelOf(next);
  const values = [text, KEEP, row, text, ...(expected === null ? [] : [labelOf(expected)])];
  const token = tokenOf(await table.run(updateToken(table.name, now, rest), values));
  return token === undefined ? undefined : toMilliseconds(token);
}

async function readPage({ family, name, run }: LockTable, after: string) {
  const select = `SELECT name, label, holders FROM ${name} WHERE name > ${family.value(1)} ORDER BY name LIMIT ${PAGE}`;
  return ((await run(select, [after])) as readonly Readonly<Record<string, unknown>>[]).map((row) => ({
    row: textOf(row['name']) ?? '',
    label: textOf(row['label']) ?? null,
    text: textOf(row['holders']),
  }));
}

function decode(row: string, text: string): string {
  try {
    return textOfLabel(text);
  } catch (cause) {
    throw new LockConfigError(
      `Row "${row}" of the table of the locks is no record that this package has written: delete the row.`,
      { cause },
    );
  }
}

function toMilliseconds(microseconds: unknown): number {
  return Number(microseconds) / 1_000;
}
