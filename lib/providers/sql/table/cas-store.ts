import type { BackendContext, CasStore } from '../../../api/lock-provider.js';
import { firstRow, type Run } from '../connection/answer.js';
import { lockErrorOf } from '../connection/failure.js';
import { rowNameOf } from './lock-name.js';
import { createRecordTableSql, quotedTable, recordTable } from './lock-schema.js';
import { ensureTable, withTable } from './lock-table.js';
import type { DatabaseSettings } from '../options.js';

/**
 * Values in a table of their own, which is looked for at the first write: applications without such values need no table.
 *
 * Why this is linearizable: each change is one statement of autocommit on one row of one writer, so changes have the order
 * in which the row was locked, each between its sending and its answer. READ COMMITTED compares with the last committed value: a
 * statement that had to wait for the row compares again after the wait. No change is empty, because `revision` grows: MySQL
 * would take an UPDATE to equal values for no change, write nothing, and a server that is no longer the writer could confirm it. A
 * value that is `next` already is written again, too, so only a loser's answer is ever a mere read. A statement that was not answered
 * may be executed later, or never: its outcome is unknown. Bytes are compared, so no collation takes two texts for equal.
 */
export class SqlCasStore implements CasStore {
  #ready: Promise<void> | undefined;
  #wasThere = false;

  constructor(
    private readonly settings: DatabaseSettings,
    private readonly context: BackendContext,
    private readonly connect: () => Promise<{ readonly run: Run }>,
  ) {}

  async compareAndSet(name: string, expected: string | null, next: string): Promise<string | null> {
    const { run } = await this.connect();
    try {
      await this.#prepared(run);
      return await withTable(
        () => this.#exchange(run, rowNameOf(this.context.namespace, name), expected, next),
        () => {
          this.#ready = undefined;
          return this.#prepared(run);
        },
      );
    } catch (error) {
      throw lockErrorOf(error, `Record "${name}"`, { provider: this.context.name });
    }
  }

  async #exchange(run: Run, row: string, expected: string | null, next: string): Promise<string | null> {
    const { source, family, table } = this.settings;
    const { changed, insert: insertInto, value: bound, hex, greatest, now } = family;
    const records = quotedTable(source.database, recordTable(table));
    const insert = insertInto(records, 'name, value, revision', `${bound(1)}, ${bound(2)}, ${now}`);
    const update =
      `UPDATE ${records} SET value = ${bound(1)}, revision = ${greatest}(revision + 1, ${now}) ` +
      `WHERE name = ${bound(2)} AND value IN (${bound(3)}, ${bound(4)})`;
    const value = Buffer.from(next);
    const before = expected === null ? value : Buffer.from(expected);
    for (;;) {
      if (expected === null && changed(await run(insert, [row, value])) === 1) return next;
      if (changed(await run(update, [value, row, before, value])) === 1) return next;
      const record = firstRow(
        await run(`SELECT ${hex('value')} AS value FROM ${records} WHERE name = ${bound(1)}`, [row]),
      );
      const found = record ? Buffer.from(String(record['value']), 'hex').toString() : null;
      // Otherwise it has changed back since.
      if (found !== expected && found !== next) return found;
    }
  }

  #prepared(run: Run): Promise<void> {
    this.#ready ??= this.#prepare(run).catch((error: unknown) => {
      this.#ready = undefined;
      throw error;
    });
    return this.#ready;
  }

  async #prepare(run: Run): Promise<void> {
    const { source, table, synchronize } = this.settings;
    const columns = `name, value, revision FROM ${quotedTable(source.database, recordTable(table))}`;
    const create = createRecordTableSql(source.database, table);
    const provider = this.context.name;
    await ensureTable(run, { what: 'records', columns, create, synchronize, provider, wasThere: this.#wasThere });
    this.#wasThere = true;
  }
}
