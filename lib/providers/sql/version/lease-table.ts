import type { BackendContext } from '../../../api/lock-provider.js';
import { isInstanceName } from '../../../api/printable.js';
import type { Run } from '../connection/answer.js';
import { Batches } from '../connection/batches.js';
import type { Family } from '../connection/dialect.js';
import type { SqlSettings } from '../options.js';
import { instanceNameOf, labelOf, textOfLabel } from '../table/lock-name.js';
import { LockTable } from '../table/lock-table.js';
import { type Lease, leaseOf, type LeaseRow } from './lease.js';

/** A hold, as its row has it. */
interface HeldLease {
  readonly name: string;
  readonly holder: string;
  readonly version: bigint;
}

/** A hold to be renewed, and for how many ms from now. */
interface Renewal extends HeldLease {
  readonly duration: number;
}

const DAY = 86_400_000;
/** Rows that are read for a list of all. */
const PAGE = 500;

/**
 * The lease rows: each operation is one statement of autocommit, which compares the row with what was read before and sets it in
 * one step, only by the database's clock.
 *
 * A claim changes the version, always to a larger one: `max(version + 1, server time in µs)`. So the version that a claim
 * compares with never comes back, and a claim whose answer is missing can be made void by setting the version once more. So does
 * forceRelease(), which a claim must not undo. Renewals and releases compare the holder instead.
 */
export class LeaseTable extends LockTable {
  readonly #reads: Batches<string, Lease | undefined>;
  readonly #renewals = new Batches((renewals: readonly Renewal[]) => this.#renewAll(renewals), Infinity);
  readonly #releases = new Batches((leases: readonly HeldLease[]) => this.#releaseAll(leases), Infinity);

  /** @param settings with the number of statements that `run` sends at a time: waiters leave half of them to renewals, claims and releases */
  constructor(table: string, family: Family, run: Run, context: BackendContext, settings: SqlSettings) {
    super(table, family, run, context, settings);
    const most = Math.max(1, Math.floor(settings.maxConnections / 2));
    this.#reads = new Batches((names) => this.#readLeases(names), most);
  }

  /** Reads the row; undefined if there is none. */
  read(name: string): Promise<Lease | undefined> {
    return this.#reads.add(name);
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
      `, holder = ${value(2)}, holders = NULL, expires = ${now} + ${value(3)} ` +
      `WHERE name = ${value(4)} AND token = ${value(5)} AND (expires <= ${now} OR holders = ${value(6)})`;
    const values = [callers - 1, holder, toMicroseconds(duration), name, version, holders];
    return tokenOf(await this.run(updateToken(this.name, `${this.nextVersion} + ${value(1)}`, rest), values));
  }

  /** Makes a claim void that compares with this version and may still be in flight. A claim that has arrived is not touched. */
  async voidClaim(name: string, version: bigint): Promise<void> {
    const rest = ` WHERE name = ${this.family.value(1)} AND token = ${this.family.value(2)}`;
    await this.run(this.family.updateToken(this.name, this.nextVersion, rest), [name, version]);
  }

  /** Renews it to `duration` ms from now. Answers whether the holder still had it. */
  renew(lease: HeldLease, duration: number): Promise<boolean> {
    return this.#renewals.add({ ...lease, duration });
  }

  /** Frees the lease. Answers whether the holder had it. */
  free(lease: HeldLease): Promise<boolean> {
    return this.#releases.add(lease);
  }

  /** Frees the lease, or retains it for `keepFor` ms, whichever its version is. Answers whether this holder had it. */
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
    const seen = await this.read(name);
    if (!seen || seen.holds.length === 0) return false;
    const { value, now, updateToken, tokenOf } = this.family;
    const rest = `, holder = NULL, holders = NULL, expires = ${now} WHERE name = ${value(1)} AND expires > ${now}`;
    return tokenOf(await this.run(updateToken(this.name, this.nextVersion, rest), [name])) !== undefined;
  }

  /**
   * The next rows by name, whether they are free or not: an index on `expires` does not exist, and a statement that looks for those that are
   * held could read the whole table. For a range of names, too, Postgres may read and sort all of it (measured without statistics of the table).
   */
  async page(from: string) {
    const rows = await this.run(
      `SELECT ${this.#columns} FROM ${this.name} WHERE name >= ${this.family.value(1)} ORDER BY name LIMIT ${PAGE}`,
      [from],
    );
    return (rows as readonly LeaseRow[]).map((row) => ({
      name: row.name.toString(),
      label: row.label?.toString() ?? null,
      lease: leaseOf(row),
    }));
  }

  /** Records the name of an instance in a row of its own, which no purge removes for a day. */
  async registerInstance(): Promise<void> {
    const { namespace, instance } = this.context;
    const row = instanceNameOf(namespace, instance.id);
    await this.createRow(row);
    const { value, now } = this.family;
    await this.run(
      `UPDATE ${this.name} SET label = ${value(1)}, expires = ${now} + ${value(2)} WHERE name = ${value(3)}`,
      [labelOf(instance.name), toMicroseconds(DAY), row],
    );
  }

  /** The names of those instances that are recorded, by their ids. */
  async namesOfInstances(ids: ReadonlySet<string>): Promise<ReadonlyMap<string, string>> {
    const names = new Map<string, string>();
    if (ids.size === 0) return names;
    const rows = await this.#read(Array.from(ids, (id) => instanceNameOf(this.context.namespace, id)));
    for (const id of ids) {
      const label = rows.get(instanceNameOf(this.context.namespace, id))?.label;
      const name = label && textOfLabel(label.toString());
      if (isInstanceName(name)) names.set(id, name);
    }
    return names;
  }

  async #readLeases(names: readonly string[]): Promise<readonly (Lease | undefined)[]> {
    const rows = await this.#read(names);
    return names.map((name) => {
      const row = rows.get(name);
      return row && leaseOf(row);
    });
  }

  /** One statement for each duration; nearly always all have the same. */
  async #renewAll(renewals: readonly Renewal[]): Promise<readonly boolean[]> {
    const durations = Array.from(new Set(renewals.map(({ duration }) => duration)), async (duration) => {
      const together = renewals.filter((renewal) => renewal.duration === duration);
      return this.#renewTogether(together, duration);
    });
    const renewed = new Set((await Promise.all(durations)).flat());
    return renewals.map((renewal) => renewed.has(renewal));
  }

  /** Answers those that still held theirs. */
  async #renewTogether<L extends HeldLease>(leases: readonly L[], duration: number): Promise<readonly L[]> {
    if ((await this.#update('', duration, leases)) === leases.length) return leases;
    // Some were lost; the rows show which. A holder that is there with the same version has held the lease without a break, since a
    // row never returns to a version; and the UPDATE renewed it, which leaves out only leases that were not held any more.
    const rows = await this.#read(leases.map(({ name }) => name));
    return leases.filter(({ name, holder, version }) => {
      const row = rows.get(name);
      return row && leaseOf(row).holds.some((hold) => hold.holder === holder && hold.token === version);
    });
  }

  /** Whether each of them was still held. */
  async #releaseAll(leases: readonly HeldLease[]): Promise<readonly boolean[]> {
    const changed = await this.#update('holder = NULL, ', 0, leases);
    if (changed === leases.length) return leases.map(() => true);
    if (changed === 0) return leases.map(() => false);
    // Some were lost; the rows show which. Those that the UPDATE has freed end at its time. One that somebody has claimed since shows by its
    // version when that was: later, or before it, and then it was lost.
    const rows = await this.#read(leases.map(({ name }) => name));
    const freed = leases.flatMap(({ name, version }) => {
      const row = rows.get(name);
      return row && BigInt(row.token) === version && row.holder === null ? Number(row.expires) : [];
    });
    if (freed.length === 0) throw new Error('It is not known which of these leases were lost.');
    const releasedAt = Math.max(...freed);
    return leases.map(({ name, version }) => {
      const row = rows.get(name);
      if (!row) return false;
      return BigInt(row.token) === version
        ? row.holder === null && Number(row.expires) === releasedAt
        : Number(row.token) > releasedAt;
    });
  }

  /**
   * Changes the rows that are still held, and their end to `duration` ms from now. Answers how many. A holder is one attempt at one key, so
   * three lists mean the same as a list of triples, which MySQL would look up without the index.
   */
  async #update(assignment: string, duration: number, leases: readonly HeldLease[]): Promise<number> {
    const { value, isAmong, list, now, changed } = this.family;
    const { length } = leases;
    const answer = await this.run(
      `UPDATE ${this.name} SET ${assignment}expires = ${now} + ${value(1)} WHERE ${isAmong('name', 2, length)} ` +
        `AND ${isAmong('holder', 3, length)} AND ${isAmong('token', 4, length)} AND expires > ${now}`,
      [
        toMicroseconds(duration),
        ...list(leases.map(({ name }) => name)),
        ...list(leases.map(({ holder }) => holder)),
        ...list(leases.map(({ version }) => version)),
      ],
    );
    return changed(answer);
  }

  async #read(names: readonly string[]): Promise<ReadonlyMap<string, LeaseRow>> {
    const rows = await this.run(
      `SELECT ${this.#columns} FROM ${this.name} WHERE ${this.family.isAmong('name', 1, names.length)}`,
      this.family.list(names),
    );
    return new Map((rows as readonly LeaseRow[]).map((row) => [row.name.toString(), row]));
  }

  get #columns(): string {
    return `name, token, holder, holders, expires, label, ${this.family.now} AS server_time`;
  }

  /** Of a claim. */
  get nextVersion(): string {
    return `${this.family.greatest}(token + 1, ${this.family.now})`;
  }
}

export function toMicroseconds(milliseconds: number): number {
  return Math.ceil(milliseconds * 1000);
}
