import type { Records } from '../../engine/lock-provider.js';
import { LockError, LockUnavailableError } from '../../lock/errors.js';
import type { Database } from './database.js';
import type { ServerSettings } from './database-options.js';
import { type Dialect, driverErrorOf, firstRow, propertyOf, type Run } from './dialect.js';
import { ensureTable } from './ensure-table.js';
import { rowNameOf } from './lock-name.js';
import { createRecordTableSql, quotedTable, recordTable } from './table-layout.js';

/**
 * Records in a table of their own, which is looked for when the first of them is written: who has none needs none.
 *
 * Why this is linearizable: each change is one statement of autocommit on one row of one writer, so changes stand in the order
 * in which the row was locked, each between its sending and its answer. READ COMMITTED compares with what was committed
 * last: whoever had to wait for the row compares again after the wait. No change is empty, because `revision` grows: MySQL
 * would take an UPDATE to equal values for none, write nothing, and a server that is no writer any more could confirm it. What is
 * found to be `next` already is written again, too, so only a loser's answer is ever a mere read. A statement that was not answered
 * may be carried out later, or never: its outcome is unknown. Bytes are compared, so that no collation takes two texts for one.
 *
 * SQLite has none: sql.js forgets with its process, and a file with a write-ahead log may lose its last commits to a power cut.
 */
export class ServerRecords implements Records {
  readonly #statements: Statements;
  #isReady = false;

  constructor(
    private readonly settings: Pick<ServerSettings, 'database' | 'table' | 'synchronize'>,
    private readonly connected: () => Promise<Database>,
  ) {
    this.#statements = statementsOf(settings.database, settings.table);
  }

  async compareAndSet(name: string, expected: string | null, next: string): Promise<string | null> {
    const { context, dialect, sessions } = await this.connected();
    try {
      const row = rowNameOf(context.namespace, name);
      return await this.#exchange(dialect, sessions.run, row, expected, next);
    } catch (error) {
      if (LockError.is(error)) throw error;
      throw new LockUnavailableError(
        `Record "${name}" of provider "${context.name}": the database did not answer or refused; check the server and its log.`,
        { provider: context.name, cause: driverErrorOf(error) },
      );
    }
  }

  async #exchange(
    dialect: Dialect,
    run: Run,
    row: string,
    expected: string | null,
    next: string,
  ): Promise<string | null> {
    const { insert, update, find } = this.#statements;
    await this.#prepare(dialect, run);
    const value = Buffer.from(next);
    const before = expected === null ? value : Buffer.from(expected);
    for (;;) {
      if (expected === null && hasChanged(await run(insert, [row, value]))) return next;
      if (hasChanged(await run(update, [value, row, before, value]))) return next;
      const found = textOf(await run(find, [row]));
      // Else it has changed back since.
      if (found !== expected && found !== next) return found;
    }
  }

  async #prepare(dialect: Dialect, run: Run): Promise<void> {
    if (this.#isReady) return;
    const { database, table, synchronize } = this.settings;
    const create = createRecordTableSql(database, table);
    await ensureTable(run, dialect, { what: 'records', find: this.#statements.findTable, create, synchronize });
    this.#isReady = true;
  }
}

interface Statements {
  readonly findTable: string;
  readonly insert: string;
  readonly update: string;
  readonly find: string;
}

function statementsOf(database: 'mysql' | 'postgres', table: string): Statements {
  const name = quotedTable(database, recordTable(table));
  const isMysql = database === 'mysql';
  const value = (position: number) => (isMysql ? '?' : `$${position}`);
  const [ignore, onConflict] = isMysql ? [' IGNORE', ''] : ['', ' ON CONFLICT DO NOTHING'];
  return {
    findTable: `SELECT 1 FROM ${name} LIMIT 0`,
    insert: `INSERT${ignore} INTO ${name} (name, value, revision) VALUES (${value(1)}, ${value(2)}, 1)${onConflict}`,
    update:
      `UPDATE ${name} SET value = ${value(1)}, revision = revision + 1 ` +
      `WHERE name = ${value(2)} AND value IN (${value(3)}, ${value(4)})`,
    find: `SELECT value FROM ${name} WHERE name = ${value(1)}`,
  };
}

function hasChanged(answer: unknown): boolean {
  return (propertyOf(answer, 'affectedRows') ?? propertyOf(answer, 'rowCount')) === 1;
}

function textOf(answer: unknown): string | null {
  const row = firstRow(answer);
  return row ? String(row['value']) : null;
}
