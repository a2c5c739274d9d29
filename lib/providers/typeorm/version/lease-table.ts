import { LockTable } from '../lock-table.js';

/** A row, by the database's clock. */
export interface Lease {
  /** The holder; undefined for a key that is free or retained. */
  readonly holder: string | undefined;
  /** The version of the row: the last token. */
  readonly version: bigint;
  /** For how many ms it is still held or retained; 0 or less when it is free. */
  readonly remaining: number;
}

/** A hold, as its row has it. */
export interface HeldLease {
  readonly name: string;
  readonly holder: string;
  readonly version: bigint;
}

/** A row as the drivers answer it; a 64-bit number comes as a number, as text or as a bigint. */
interface LeaseColumns {
  readonly holder: string | Buffer | null;
  readonly token: string | number | bigint;
  readonly remaining: string | number | bigint;
}

// Three values a row. SQLite takes 32 766 in a statement, Postgres 65 535; beyond a few hundred nothing is gained.
const ROWS_IN_A_BATCH = 500;

/**
 * The lease rows: each operation is one statement of autocommit, which compares the row with what was read before and sets it in
 * one step, only by the database's clock.
 *
 * Only a claim changes the version, always to a larger one: `max(version + 1, server time in µs)`. So the version that a claim
 * compares with never comes back, and a claim whose answer is missing can be made void by setting the version once more.
 */
export class LeaseTable extends LockTable {
  /** Reads the row; undefined if there is none. */
  async look(name: string): Promise<Lease | undefined> {
    const [lease] = await this.#read([name]);
    return lease;
  }

  /** Takes the lease for `duration` ms if it is free and its version still the one that was seen. Answers the new version. */
  async claim({ name, holder, version }: HeldLease, duration: number): Promise<bigint | undefined> {
    const { value, now, updateToken, tokenOf } = this.family;
    const rest =
      `, holder = ${value(1)}, expires = ${now} + ${value(2)} ` +
      `WHERE name = ${value(3)} AND token = ${value(4)} AND expires <= ${now}`;
    const values = [holder, toMicroseconds(duration), name, version];
    return tokenOf(await this.run(updateToken(this.name, this.#nextVersion, rest), values));
  }

  /** Makes a claim void that compares with this version and may still be in flight. A claim that has arrived is not touched. */
  async voidClaim(name: string, version: bigint): Promise<void> {
    const rest = ` WHERE name = ${this.family.value(1)} AND token = ${this.family.value(2)}`;
    await this.run(this.family.updateToken(this.name, this.#nextVersion, rest), [name, version]);
  }

  /** Renews all of them to `duration` ms from now. Answers the holders that still had theirs. */
  async renew(leases: readonly HeldLease[], duration: number): Promise<Set<string>> {
    const renewed = new Set<string>();
    for (let from = 0; from < leases.length; from += ROWS_IN_A_BATCH) {
      const batch = leases.slice(from, from + ROWS_IN_A_BATCH);
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

  /** Frees the lease, whether it is held or retained. Answers whether it was not free. */
  async forceRelease(name: string): Promise<boolean> {
    const answer = await this.run(
      `UPDATE ${this.name} SET holder = NULL, expires = ${this.family.now} ` +
        `WHERE name = ${this.family.value(1)} AND expires > ${this.family.now}`,
      [name],
    );
    return this.family.changed(answer) === 1;
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
    const held = new Map(
      found.filter(({ remaining }) => remaining > 0).map(({ holder, version }) => [holder, version]),
    );
    return leases.filter(({ holder, version }) => held.get(holder) === version).map(({ holder }) => holder);
  }

  async #read(names: readonly string[]): Promise<readonly Lease[]> {
    const rows = await this.run(
      `SELECT holder, token, expires - ${this.family.now} AS remaining FROM ${this.name} WHERE name IN (${this.#list(names, 1)})`,
      names,
    );
    return (rows as readonly LeaseColumns[]).map(({ holder, token, remaining }) => ({
      // A VARBINARY comes as a Buffer.
      holder: holder?.toString(),
      version: BigInt(token),
      remaining: Number(remaining) / 1000,
    }));
  }

  get #nextVersion(): string {
    return `${this.family.greatest}(token + 1, ${this.family.now})`;
  }

  #list(values: readonly unknown[], from: number): string {
    return values.map((_, index) => this.family.value(from + index)).join(', ');
  }
}

function toMicroseconds(milliseconds: number): number {
  return Math.ceil(milliseconds * 1000);
}
