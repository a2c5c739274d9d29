import type { BackendContext } from '../../../api/lock-provider.js';
import { isInstanceName } from '../../../api/printable.js';
import type { Run } from '../connection/answer.js';
import { Batches } from '../connection/batches.js';
import type { Family } from '../connection/dialect.js';
import type { SqlSettings } from '../options.js';
import { instanceNameOf, labelOf, textOfLabel } from '../table/lock-name.js';
import { type LockRow, LockTable } from '../table/lock-table.js';
import { type Lease, leaseOf } from './lease.js';

/** A claim to a lease, given its row as it was read. */
export interface NewClaim {
  readonly name: string;
  readonly seen: Lease;
  readonly holder: string;
}

/** A hold as stored in its row. */
export interface HeldLease {
  readonly name: string;
  readonly holder: string;
  /** The hold's token. */
  readonly version: bigint;
}

/** A hold to renew for `duration` ms from now. */
interface Renewal extends HeldLease {
  readonly duration: number;
}

const DAY = 86_400_000;

/**
 * The lease rows. Each operation is a single autocommit statement that compares the row with what was read
 * before and updates it, using only the database's clock.
 *
 * A claim always raises the version, to `max(version + 1, server time in µs)`. The version that a claim compares
 * against never recurs, so an unanswered claim can be voided by changing the version again. forceRelease()
 * does the same, because a claim must not undo it. Renewals and releases compare the holder instead.
 */
export class LeaseTable extends LockTable {
  readonly #reads: Batches<string, Lease | undefined>;
  readonly #renewals = new Batches((renewals: readonly Renewal[]) => this.#renewAll(renewals), Infinity);
  readonly #releases = new Batches((leases: readonly HeldLease[]) => this.#releaseAll(leases), Infinity);

  /**
   * @param settings `maxConnections` is the number of concurrent statements; waiters leave half of them for renewals,
   * claims, and releases
   */
  constructor(table: string, family: Family, run: Run, context: BackendContext, settings: SqlSettings) {
    super(table, family, run, context, settings);
    const most = Math.max(1, Math.floor(settings.maxConnections / 2));
    this.#reads = new Batches(async (names) => {
      const rows = await this.#read(names);
      return names.map((name) => {
        const row = rows.get(name);
        return row && leaseOf(row);
      });
    }, most);
  }

  /** Resolves to the row, or undefined if it doesn't exist. */
  read(name: string): Promise<Lease | undefined> {
    return this.#reads.add(name);
  }

  /**
   * Acquires the lease for `duration` ms if it is free and its version is unchanged. Resolves to the new version, which
   * is the last of the tokens for `callers` callers. Limited holders don't lower `expires` when they leave, so all
   * their holds must have ended when the row was read, and `holders` must be unchanged.
   */
  async claim({ name, seen, holder }: NewClaim, duration: number, callers: number): Promise<bigint | undefined> {
    const { value, now, updateToken, tokenOf } = this.family;
    const rest =
      `, holder = ${value(2)}, holders = NULL, expires = ${now} + ${value(3)} ` +
      `WHERE name = ${value(4)} AND token = ${value(5)} AND (expires <= ${now} OR holders = ${value(6)})`;
    const values = [callers - 1, holder, toMicroseconds(duration), name, seen.version, seen.holders];
    return tokenOf(await this.run(updateToken(this.name, `${this.nextVersion} + ${value(1)}`, rest), values));
  }

  /**
   * Voids a claim that compares against this version and may still be in flight. Has no effect if the claim has already
   * been executed.
   */
  async voidClaim(name: string, version: bigint): Promise<void> {
    const rest = ` WHERE name = ${this.family.value(1)} AND token = ${this.family.value(2)}`;
    await this.run(this.family.updateToken(this.name, this.nextVersion, rest), [name, version]);
  }

  /**
   * Renews the lease to `duration` ms from now, or keeps a later end: a server may execute a renewal long after it was
   * given up, when the lease has been extended since. Resolves to whether the holder still held it.
   */
  renew(lease: HeldLease, duration: number): Promise<boolean> {
    return this.#renewals.add({ ...lease, duration });
  }

  /** Frees the lease. Resolves to whether the holder held it. */
  free(lease: HeldLease): Promise<boolean> {
    return this.#releases.add(lease);
  }

  /** Frees the lease, or retains it for `keepFor` ms, whatever its version. Resolves to whether this holder held it. */
  async release(name: string, holder: string, keepFor: number): Promise<boolean> {
    const answer = await this.run(
      `UPDATE ${this.name} SET holder = NULL, expires = ${this.family.now} + ${this.family.value(1)} ` +
        `WHERE name = ${this.family.value(2)} AND holder = ${this.family.value(3)} AND expires > ${this.family.now}`,
      [toMicroseconds(keepFor), name, holder],
    );
    return this.family.changed(answer) === 1;
  }

  /** Frees the row if it is held or retained. Resolves to whether it was. */
  async forceRelease(name: string): Promise<boolean> {
    const seen = await this.read(name);
    if (!seen || seen.holds.length === 0) return false;
    const { value, now, updateToken, tokenOf } = this.family;
    const rest = `, holder = NULL, holders = NULL, expires = ${now} WHERE name = ${value(1)} AND expires > ${now}`;
    return tokenOf(await this.run(updateToken(this.name, this.nextVersion, rest), [name])) !== undefined;
  }

  /** Stores this instance's name in a separate row that is safe from purges for a day. */
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

  /** The recorded instance names, by id. */
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

  /** Sends one statement per duration. The durations are almost always the same. */
  async #renewAll(renewals: readonly Renewal[]): Promise<readonly boolean[]> {
    const durations = Array.from(new Set(renewals.map(({ duration }) => duration)), async (duration) => {
      const together = renewals.filter((renewal) => renewal.duration === duration);
      return this.#renewTogether(together, duration);
    });
    const renewed = new Set((await Promise.all(durations)).flat());
    return renewals.map((renewal) => renewed.has(renewal));
  }

  /** Resolves to the leases that were still held. */
  async #renewTogether<L extends HeldLease>(leases: readonly L[], duration: number): Promise<readonly L[]> {
    const { value, now } = this.family;
    const changed = await this.#update(`expires = GREATEST(expires, ${now} + ${value(1)})`, duration, leases);
    if (changed === leases.length) return leases;
    // Some may be lost, so read the rows to see which. (Without FOUND_ROWS, MySQL doesn't count a row that keeps its
    // end.) A holder still listed with the same version has held the lease continuously, because a row's versions never
    // recur. It was also renewed, because the UPDATE skips only leases that are no longer held.
    const rows = await this.#read(leases.map(({ name }) => name));
    return leases.filter(({ name, holder, version }) => {
      const row = rows.get(name);
      return row && leaseOf(row).holds.some((hold) => hold.holder === holder && hold.token === version);
    });
  }

  /** Whether each lease was still held. */
  async #releaseAll(leases: readonly HeldLease[]): Promise<readonly boolean[]> {
    const { value, now } = this.family;
    const changed = await this.#update(`holder = NULL, expires = ${now} + ${value(1)}`, 0, leases);
    if (changed === leases.length) return leases.map(() => true);
    if (changed === 0) return leases.map(() => false);
    // Some were lost, so read the rows to see which. Leases freed by the UPDATE end when it runs. If a lease has been
    // claimed since, its version shows whether the claim came before or after the UPDATE; if before, the lease was
    // lost.
    const rows = await this.#read(leases.map(({ name }) => name));
    const freed = leases.flatMap(({ name, version }) => {
      const row = rows.get(name);
      return row && BigInt(row.token) === version && row.holder === null ? Number(row.expires) : [];
    });
    if (freed.length === 0) throw new Error('Some of these leases were lost, but it is unknown which.');
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
   * Changes the rows still held. Resolves to the number of changed rows. A holder is one attempt at one key, so three
   * lists are equivalent to a list of triples, for which MySQL would not use the index.
   *
   * @param duration the statement's first value, in ms
   */
  async #update(assignments: string, duration: number, leases: readonly HeldLease[]): Promise<number> {
    const { isAmong, list, now, changed } = this.family;
    const { length } = leases;
    const answer = await this.run(
      `UPDATE ${this.name} SET ${assignments} WHERE ${isAmong('name', 2, length)} ` +
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

  async #read(names: readonly string[]): Promise<ReadonlyMap<string, LockRow>> {
    const rows = await this.run(
      `SELECT ${this.columns} FROM ${this.name} WHERE ${this.family.isAmong('name', 1, names.length)}`,
      this.family.list(names),
    );
    return new Map((rows as readonly LockRow[]).map((row) => [row.name.toString(), row]));
  }

  /** The version that a claim sets. */
  get nextVersion(): string {
    return `GREATEST(token + 1, ${this.family.now})`;
  }
}

export function toMicroseconds(milliseconds: number): number {
  return Math.ceil(milliseconds * 1000);
}
