import { LockTable } from '../lock-table.js';
import { type Lease, type LeaseColumns, leaseOf } from './lease.js';

/** A hold, as its row has it. */
export interface HeldLease {
  readonly name: string;
  readonly holder: string;
  readonly version: bigint;
}

/** A row in a list of all. */
export interface NamedLease {
  readonly name: string;
  readonly label: string | null;
  readonly lease: Lease;
}

interface NamedColumns extends LeaseColumns {
  readonly name: string | Buffer;
  readonly label: string | Buffer | null;
}

// Three values a row. SQLite takes 32 766 in a statement, Postgres 65 535; beyond a few hundred nothing is gained.
const ROWS_IN_A_BATCH = 500;

/**
 * The lease rows: each operation is one statement of autocommit, which compares the row with what was read before and sets it in
 * one step, only by the database's clock.
 *
 * A claim changes the version, always to a larger one: `max(version + 1, server time in µs)`. So the version that a claim
 * compares with never comes back, and a claim whose answer is missing can be made void by setting the version once more. So does
 * forceRelease(), which a claim must not undo. Renewals and releases compare the holder instead.
 */
export class LeaseTable extends LockTable {
  /** Reads the row; undefined if there is none. */
  async look(name: string): Promise<Lease | undefined> {
    const [lease] = await this.#read([name]);
    return lease;
  }

  /**
   * Takes the lease for `duration` ms if it is free and its version still the one that was seen. Answers the new version, which is the last of
   * the tokens of as many callers. The time in the column
   * `expires` is not lowered by limited holders that leave: there all must have ended when it was seen, and be the same still.
   */
  async claim(
    name: string,
    { version, holders }: Lease,
    holder: string,
    duration: number,
    callers: number,
  ): Promise<bigint | undefined> {
    const { value, now, updateToken, tokenOf } = this.family;
    const rest =
      `, holder = ${value(1)}, holders = NULL, expires = ${now} + ${value(2)} ` +
      `WHERE name = ${value(3)} AND token = ${value(4)} AND (expires <= ${now} OR holders = ${value(5)})`;
    const values = [holder, toMicroseconds(duration), name, version, holders];
    const next = callers === 1 ? this.nextVersion : `${this.nextVersion} + ${callers - 1}`;
    return tokenOf(await this.run(updateToken(this.name, next, rest), values));
  }

  /** Makes a claim void that compares with this version and may still be in flight. A claim that has arrived is not touched. */
  async voidClaim(name: string, version: bigint): Promise<void> {
    const rest = ` WHERE name = ${this.family.value(1)} AND token = ${this.family.value(2)}`;
    await this.run(this.family.updateToken(this.name, this.nextVersion, rest), [name, version]);
  }

  /** Renews all of them to `duration` ms from now. Answers the holders that still had theirs. */
  async renew(leases: readonly HeldLease[], duration: number): Promise<ReadonlySet<string>> {
    const renewed = new Set<string>();
    for (const batch of inBatches(leases)) {
      for (const holder of await this.#renewBatch(batch, duration)) renewed.add(holder);
    }
    return renewed;
  }

  /** Frees the lease, or retains it for `keepFor` ms. Answers whether this holder had it. */
  async release(name: string, holder: string, keepFor: number): Promise<boolean> {
    const answer = await this.run(
      `UPDATE ${this.name} SET holder = NULL, expires = ${this.family.now} + ${this.family.value(1)} ` +
        `WHERE name = ${this.family.value(2)} AND holder = ${this.family.value(3)} AND expires > ${this.family.now}`,
      [toMicroseconds(keepFor), name, holder],
    );
    return this.family.changed(answer) === 1;
  }

  /** Frees the row, whether it is held or retained. Answers whether it was not free. */
  async forceRelease(name: string): Promise<boolean> {
    const seen = await this.look(name);
    if (!seen || seen.holds.length === 0) return false;
    const { value, now, updateToken, tokenOf } = this.family;
    const rest = `, holder = NULL, holders = NULL, expires = ${now} WHERE name = ${value(1)} AND expires > ${now}`;
    return tokenOf(await this.run(updateToken(this.name, this.nextVersion, rest), [name])) !== undefined;
  }

  /**
   * The next rows by name, whether they are free or not: an index on `expires` does not exist, and a statement that looks for those that are
   * held could read the whole table. For a range of names, too, Postgres may read and sort all of it (measured without statistics of the table).
   */
  async page(from: string): Promise<readonly NamedLease[]> {
    const rows = await this.run(
      `SELECT name, label, ${this.#columns} FROM ${this.name} ` +
        `WHERE name >= ${this.family.value(1)} ORDER BY name LIMIT ${ROWS_IN_A_BATCH}`,
      [from],
    );
    return (rows as readonly NamedColumns[]).map(({ name, label, ...columns }) => ({
      name: name.toString(),
      label: label === null ? null : label.toString(),
      lease: leaseOf(columns),
    }));
  }

  /** The labels of these rows, each with the name of its row. */
  async labels(names: readonly string[]): Promise<readonly (readonly [string, string])[]> {
    const found: (readonly [string, string])[] = [];
    for (const batch of inBatches(names)) {
      const rows = await this.run(
        `SELECT name, label FROM ${this.name} WHERE name IN (${this.#list(batch, 1)}) AND label IS NOT NULL`,
        batch,
      );
      for (const { name, label } of rows as readonly NamedColumns[]) found.push([name.toString(), String(label)]);
    }
    return found;
  }

  /**
   * A holder is one attempt at one key, so three lists mean the same as a list of triples, which MySQL would look up without
   * the index.
   */
  async #renewBatch(leases: readonly HeldLease[], duration: number): Promise<readonly string[]> {
    const names = leases.map(({ name }) => name);
    const holders = leases.map(({ holder }) => holder);
    const versions = leases.map(({ version }) => version);
    const size = leases.length;
    const answer = await this.run(
      `UPDATE ${this.name} SET expires = ${this.family.now} + ${this.family.value(1)} WHERE name IN (${this.#list(names, 2)}) ` +
        `AND holder IN (${this.#list(holders, 2 + size)}) AND token IN (${this.#list(versions, 2 + 2 * size)}) ` +
        `AND expires > ${this.family.now}`,
      [toMicroseconds(duration), ...names, ...holders, ...versions],
    );
    if (this.family.changed(answer) === size) return holders;
    // Some were lost; the rows show which. A holder that is there with the same version has held the lease without a break, since a
    // row never returns to a version; and the UPDATE renewed it, which leaves out only leases that were not held any more.
    const found = await this.#read(names);
    const held = new Map(found.flatMap(({ holds }) => holds.map(({ holder, token }) => [holder, token])));
    return leases.filter(({ holder, version }) => held.get(holder) === version).map(({ holder }) => holder);
  }

  async #read(names: readonly string[]): Promise<readonly Lease[]> {
    const rows = await this.run(
      `SELECT ${this.#columns} FROM ${this.name} WHERE name IN (${this.#list(names, 1)})`,
      names,
    );
    return (rows as readonly LeaseColumns[]).map(leaseOf);
  }

  get #columns(): string {
    return `token, holder, holders, expires, ${this.family.now} AS server_time`;
  }

  /** Of a claim. */
  get nextVersion(): string {
    return `${this.family.greatest}(token + 1, ${this.family.now})`;
  }

  #list(values: readonly unknown[], from: number): string {
    return values.map((_, index) => this.family.value(from + index)).join(', ');
  }
}

export function toMicroseconds(milliseconds: number): number {
  return Math.ceil(milliseconds * 1000);
}

function* inBatches<T>(all: readonly T[]): Iterable<readonly T[]> {
  for (let from = 0; from < all.length; from += ROWS_IN_A_BATCH) yield all.slice(from, from + ROWS_IN_A_BATCH);
}
