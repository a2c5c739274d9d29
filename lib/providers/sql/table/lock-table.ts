import { LockConfigError } from '../../../api/errors.js';
import type { BackendContext } from '../../../api/lock-provider.js';
import { firstRow, isTrue, type Run } from '../connection/answer.js';
import { Batches } from '../connection/batches.js';
import type { Family } from '../connection/dialect.js';
import { faultOf, pauseBeforeRetry, remedyOf } from '../connection/failure.js';
import type { SqlSettings } from '../options.js';
import { partsOf, quotedTable } from './lock-schema.js';

/** The table in which each key that was ever locked has a row. The row of a row lock does not show its holder. */
export class LockTable {
  readonly name: string;
  /** It has existed in the life of this process. */
  #wasThere = false;
  #preparing: Promise<void> | undefined;
  /** The callers that need a token, by the names of their counters. */
  readonly #counted = new Map<string, Batches<undefined, bigint>>();

  constructor(
    /** Its name with its schema: a task may choose another schema on the connection of its lock. */
    readonly unquoted: string,
    readonly family: Family,
    /** In autocommit. */
    readonly run: Run,
    protected readonly context: BackendContext,
    private readonly settings: Pick<SqlSettings, 'synchronize' | 'commandTimeout'>,
  ) {
    this.name = quotedTable(family, unquoted);
  }

  /**
   * Resolves at once where it was done before.
   *
   * @throws LockConfigError when the table does not exist and must not be created, or a privilege is missing
   */
  async prepare(): Promise<void> {
    if (!this.#wasThere) await this.restore();
  }

  /** As {@link prepare}, after a drop. Callers that miss the table in the same moment share one attempt. */
  restore(): Promise<void> {
    this.#preparing ??= this.#prepare().finally(() => {
      this.#preparing = undefined;
    });
    return this.#preparing;
  }

  async #prepare(): Promise<void> {
    await this.#ensure();
    // Another process may drop all tables at its start.
    await withTable(
      () => this.#check(),
      () => this.#ensure(),
    );
    this.#wasThere = true;
  }

  async #ensure(): Promise<void> {
    const { name: provider } = this.context;
    const create = this.family.createTable(this.name);
    const find = () => this.run(`SELECT name, token, holder, expires, label, holders FROM ${this.name} LIMIT 0`);
    try {
      await find();
      return;
    } catch (error) {
      if (faultOf(error) !== 'no-table') throw error;
      if (!this.settings.synchronize) {
        throw new LockConfigError(
          `Lock provider "${provider}": the table of the locks ${this.#wasThere ? 'is gone: it was dropped or renamed since the start' : 'does not exist'}. Create it in a migration (${create}), as \`npx nestjs-distributed-lock sql\` prints it, or set \`synchronize\`.`,
          { provider, cause: error },
        );
      }
    }
    try {
      await this.run(create);
    } catch (error) {
      // Two processes that create it in the same moment may fail despite IF NOT EXISTS (Postgres: 23505). Then it exists.
      if (await find().catch(() => undefined)) return;
      if (remedyOf(error) === undefined) throw error;
      throw new LockConfigError(
        `Lock provider "${provider}": the table of the locks could not be created: ${String(error)}. The account needs the privilege CREATE for \`synchronize\`; or create the table in a migration (${create}).`,
        { provider, refused: true, cause: error },
      );
    }
  }

  async #check(): Promise<void> {
    const { name, run, unquoted } = this;
    // These statements touch no row. Without the privilege the first lock would fail instead.
    await run(`INSERT INTO ${name} (name, expires, label) SELECT name, expires, label FROM ${name} WHERE 1 = 0`);
    await run(
      `UPDATE ${name} SET token = token, holder = holder, expires = expires, label = label, holders = holders WHERE 1 = 0`,
    );
    if (await this.#fits()) return;
    // MariaDB shows a table that it drops without its engine or its key. This statement waits for the end of the drop.
    await run(`SELECT 1 FROM ${name} LIMIT 0`);
    if (await this.#fits()) return;
    throw new LockConfigError(
      `Table "${unquoted}" cannot keep locks: it must have "name" as its primary key, and on MySQL and MariaDB the engine InnoDB. Create it by the migration LockTables.`,
      { provider: this.context.name },
    );
  }

  /** Also where the server shows no such table. */
  async #fits(): Promise<boolean> {
    const { schema, name } = partsOf(this.unquoted);
    const answer = firstRow(await this.run(...this.family.fits(schema, name, this.name)));
    return !answer || isTrue(answer['fits']);
  }

  /**
   * Creates the row of a key. In autocommit and before any attempt locks it: a lock on a row that does not exist is granted to
   * every caller under READ COMMITTED (measured on MariaDB 10.11), so it must never count. Resolves to false when another transaction
   * prevents it: the row is being made there, or is in a gap that is locked.
   */
  async createRow(name: string, label: string | null = null): Promise<boolean> {
    try {
      await this.run(this.family.insertKey(this.name), [name, label]);
      return true;
    } catch (error) {
      if (faultOf(error) !== 'busy') throw error;
      return false;
    }
  }

  /**
   * As {@link createRow}, retried for `commandTimeout` while another transaction prevents it. Usually another writer is creating the row, which
   * takes a moment.
   *
   * @param kind of the rows, for the message
   */
  async ensureRow(kind: string, name: string, label?: string | null): Promise<void> {
    const { clock } = this.context;
    const until = clock.now() + this.settings.commandTimeout;
    while (!(await this.createRow(name, label))) {
      if (clock.now() > until) throw new Error(`A transaction has locked the ${kind}.`);
      await pauseBeforeRetry(this.context);
    }
  }

  /**
   * The next fencing tokens of a counter, as many as there are callers; resolves to the last one. Committed by autocommit of the
   * connection of `run`: in the transaction of the lock a token would be rolled back when the holder is killed, and the next holder
   * would get the same.
   */
  async nextTokens(counter: string, count: number, run = this.run): Promise<bigint> {
    const { family, name } = this;
    const next = `${family.greatest}(token + ${family.value(1)}, ${family.now})`;
    for (;;) {
      const update = family.updateToken(name, next, ` WHERE name = ${family.value(2)}`);
      const last = family.tokenOf(await run(update, [count, counter]));
      if (last !== undefined) return last;
      await this.ensureRow('fencing counters', counter);
    }
  }

  /**
   * The next token, for a lock whose own connection cannot commit it. Callers that need a token of the same counter while a statement for it is
   * in flight share the next one, since each statement is a commit. A token is counted after its lock was granted, so none is for a caller that
   * came later.
   */
  nextToken(counter: string): Promise<bigint> {
    let callers = this.#counted.get(counter);
    if (!callers) {
      callers = new Batches(async ({ length }) => {
        const last = await this.nextTokens(counter, length);
        return Array.from({ length }, (_, index) => last - BigInt(length - 1 - index));
      }, 1);
      this.#counted.set(counter, callers);
    }
    return callers.add(undefined);
  }
}

/** The rows in a range of names, page by page. @param read resolves to the next rows by name, from this name on */
export async function* pagesOf<Row extends { readonly name: string }>(
  [first, end]: readonly [string, string],
  read: (from: string) => Promise<readonly Row[]>,
): AsyncGenerator<readonly Row[]> {
  for (let from = first; ;) {
    const page = (await read(from)).filter(({ name }) => name < end);
    yield page;
    const last = page.at(-1);
    if (!last) return;
    // The exclamation mark comes before every character of a name.
    from = `${last.name}!`;
  }
}

// How often a table may be dropped while one operation runs.
const MOST_DROPS = 3;

/** Resolves as `work` does. If the table is missing, restores it and works again. */
export async function withTable<T>(work: () => Promise<T>, restore: () => Promise<void>): Promise<T> {
  for (let drops = 0; ; drops += 1) {
    try {
      return await work();
    } catch (error) {
      if (faultOf(error) !== 'no-table' || drops === MOST_DROPS) throw error;
      await restore();
    }
  }
}
