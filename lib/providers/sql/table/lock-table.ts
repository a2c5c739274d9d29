import { toMilliseconds } from '../../../api/duration.js';
import { LockConfigError } from '../../../api/errors.js';
import type { BackendContext } from '../../../api/lock-provider.js';
import type { PurgeOptions } from '../../../api/purge-options.js';
import { firstRow, isTrue, type Row, type Run, textOf } from '../connection/answer.js';
import { Batches } from '../connection/batches.js';
import type { Family } from '../connection/dialect.js';
import { faultOf, pauseBeforeRetry, remedyOf } from '../connection/failure.js';
import type { SqlSettings } from '../options.js';
import { type EntryKind, entryNamesOf, keyOfEntry } from './lock-name.js';
import { partsOf, quotedTable } from './lock-schema.js';

/**
 * A row as returned by the drivers: a 64-bit number may be a number, a string, or a bigint, and a binary column is a
 * Buffer.
 */
export interface LockRow {
  readonly name: string | Buffer;
  readonly token: string | number | bigint;
  readonly holder: string | Buffer | null;
  readonly holders: string | Buffer | null;
  readonly expires: string | number | bigint;
  readonly label: string | Buffer | null;
  readonly server_time: string | number | bigint;
}

/** How many rows a list reads per statement. */
const PAGE = 500;
// A statement reads at most this many rows, so it takes a few ms regardless of the table's size. An index on `expires`
// would be faster, but every acquire, renewal, and release would have to update it.
const ROWS_IN_A_PART = 5_000;
// How many rows one statement deletes, locking them for a few ms.
const ROWS_IN_A_BATCH = 100;
/** All names sort between these two. */
const ALL_NAMES: readonly [string, string] = ['', '\u007f'];

/**
 * The lock table. It contains a row for each key that has ever been locked. A row lock's row doesn't show the holder.
 */
export class LockTable {
  readonly name: string;
  /** Whether this process has found the table before. */
  #wasThere = false;
  #preparing: Promise<void> | undefined;
  /** The callers waiting for a token, by counter name. */
  readonly #counted = new Map<string, Batches<undefined, bigint>>();

  constructor(
    /** The schema-qualified name, because a task may change the schema on the lock's connection. */
    readonly unquoted: string,
    readonly family: Family,
    /** Runs a statement in autocommit. */
    readonly run: Run,
    protected readonly context: BackendContext,
    private readonly settings: Pick<SqlSettings, 'synchronize' | 'commandTimeout'>,
  ) {
    this.name = quotedTable(family, unquoted);
  }

  /**
   * Checks or creates the table. Does nothing if it has already been checked.
   *
   * @throws LockConfigError if the table is missing and may not be created, or if a privilege is missing
   */
  async prepare(): Promise<void> {
    if (!this.#wasThere) await this.restore();
  }

  /** Like {@link prepare}, but for use after the table was dropped. Concurrent callers share one attempt. */
  restore(): Promise<void> {
    this.#preparing ??= this.#prepare().finally(() => {
      this.#preparing = undefined;
    });
    return this.#preparing;
  }

  async #prepare(): Promise<void> {
    await this.#ensure();
    // Another process may be dropping all tables at startup.
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
          `Lock provider "${provider}": the lock table ${this.#wasThere ? 'was dropped or renamed since startup' : 'does not exist'}. Create it in a migration (${create}), as printed by \`npx nestjs-distributed-lock sql\`, or set \`synchronize\`.`,
          { provider, cause: error },
        );
      }
    }
    try {
      await this.run(create);
    } catch (error) {
      // If two processes create the table at once, one may fail despite IF NOT EXISTS (Postgres: 23505), but then it
      // exists.
      if (await find().catch(() => undefined)) return;
      if (remedyOf(error) === undefined) throw error;
      throw new LockConfigError(
        `Lock provider "${provider}": the lock table could not be created: ${String(error)}. Grant CREATE to the account for \`synchronize\`, or create the table in a migration (${create}).`,
        { provider, refused: true, cause: error },
      );
    }
  }

  async #check(): Promise<void> {
    const { name, run, unquoted } = this;
    // These statements don't affect any rows. Without them, a missing privilege would only show up when the first lock
    // fails.
    await run(`INSERT INTO ${name} (name, expires, label) SELECT name, expires, label FROM ${name} WHERE 1 = 0`);
    await run(
      `UPDATE ${name} SET token = token, holder = holder, expires = expires, label = label, holders = holders WHERE 1 = 0`,
    );
    if (await this.#fits()) return;
    // While MariaDB is dropping a table, it shows the table without its engine or key. This statement waits for the
    // drop to finish.
    await run(`SELECT 1 FROM ${name} LIMIT 0`);
    if (await this.#fits()) return;
    throw new LockConfigError(
      `Table "${unquoted}" cannot store locks. Its primary key must be "name" and, on MySQL and MariaDB, its engine must be InnoDB. Recreate it in a migration.`,
      { provider: this.context.name },
    );
  }

  /** Whether the table can store locks. Also true if the server doesn't show the table. */
  async #fits(): Promise<boolean> {
    const { schema, name } = partsOf(this.unquoted);
    const answer = firstRow(await this.run(...this.family.fits(schema, name, this.name)));
    return !answer || isTrue(answer['fits']);
  }

  /**
   * Creates a key's row in autocommit before any attempt to lock it. Under READ COMMITTED, a lock on a missing
   * row is granted to every caller (measured on MariaDB 10.11), so such a lock must never be trusted. Resolves to false
   * if another transaction prevents the insert by creating the row or locking a gap.
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
   * Like {@link createRow}, but retries for `commandTimeout` while another transaction prevents it. Usually, another
   * process is creating the row, which takes only a moment.
   *
   * @param kind what to call the rows in the message
   */
  async ensureRow(kind: string, name: string, label?: string | null): Promise<void> {
    const { clock } = this.context;
    const until = clock.now() + this.settings.commandTimeout;
    while (!(await this.createRow(name, label))) {
      if (clock.now() > until) throw new Error(`Another transaction has locked the ${kind}.`);
      await pauseBeforeRetry(this.context);
    }
  }

  /**
   * Takes a counter's next `count` fencing tokens and resolves to the last one. The update is autocommitted on `run`'s
   * connection. In the lock's transaction, a token would be rolled back if the holder were killed, and
   * the next holder would get the same one.
   */
  async nextTokens(counter: string, count: number, run = this.run): Promise<bigint> {
    const { family, name } = this;
    const next = `GREATEST(token + ${family.value(1)}, ${family.now})`;
    for (;;) {
      const update = family.updateToken(name, next, ` WHERE name = ${family.value(2)}`);
      const last = family.tokenOf(await run(update, [count, counter]));
      if (last !== undefined) return last;
      await this.ensureRow('fencing counters', counter);
    }
  }

  /**
   * Takes the next token for a lock whose own connection can't commit it. Each statement costs a commit, so callers
   * that arrive while one is in flight for the same counter share the next statement. Tokens are issued after the lock
   * is granted, so no caller gets a token that predates its grant.
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

  /**
   * Reads the next rows in name order, whatever they are. There is no index on `expires`, so a search for held
   * rows could read the whole table. The same goes for a range of names: Postgres may read and sort the whole range
   * (measured without table statistics).
   */
  async page(from: string): Promise<readonly LockRow[]> {
    const { columns, name, family } = this;
    const select = `SELECT ${columns} FROM ${name} WHERE name >= ${family.value(1)} ORDER BY name LIMIT ${PAGE}`;
    return (await this.run(select, [from])) as readonly LockRow[];
  }

  /**
   * Deletes lock rows in a range of names (default: all) that have been unused for `unusedFor` (1 s to 24.8 days).
   * Resolves to the number deleted. Each statement is a separate transaction, so a process that freezes in between
   * doesn't leave rows locked.
   *
   * Rows in use are never deleted: held or retained leases end in the future, and rows locked by any transaction
   * are skipped. Candidates are first read without locking, because a locking scan would make free keys look busy.
   *
   * @throws LockConfigError for an invalid `unusedFor`
   */
  async purge({ unusedFor }: PurgeOptions, [begin, afterLast] = ALL_NAMES): Promise<number> {
    const { name, family, run } = this;
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

  protected get columns(): string {
    return `name, token, holder, holders, expires, label, ${this.family.now} AS server_time`;
  }
}

/**
 * The leases or the records in a namespace whose keys may have this prefix, page by page. @param read resolves to the
 * next rows in name order, starting with the given name
 */
export async function* entriesOf(
  namespace: string,
  kind: EntryKind,
  prefix: string,
  read: (from: string) => Promise<readonly LockRow[]>,
) {
  const [first, end] = entryNamesOf(namespace, kind, prefix);
  for (let from = first; ;) {
    const page = (await read(from)).filter(({ name }) => name.toString() < end);
    yield page.flatMap((row) => {
      const key = keyOfEntry(namespace, kind, row);
      return key === undefined ? [] : [{ row, key }];
    });
    const last = page.at(-1);
    if (!last) return;
    // The exclamation mark sorts before every character in a name.
    from = `${last.name.toString()}!`;
  }
}

/**
 * The condition for rows that may be purged: all except fencing counters, whose last use isn't recorded, and the few
 * probe rows, which every startup reuses.
 */
export function isUnused({ now }: Family, unusedFor: number): string {
  return `name NOT LIKE '%#fence:%' AND name NOT LIKE '%#probe:%' AND expires <= ${now} - ${Math.ceil(unusedFor * 1000)}`;
}

// How many times the table may be dropped during one operation.
const MOST_DROPS = 3;

/** Resolves to `work`'s result. If the table is missing, restores it and retries. */
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
