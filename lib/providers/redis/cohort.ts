import { HolderTable } from '../../core/toolkit/holder-table.js';
import { LeaseValidity } from '../../core/toolkit/validity.js';
import type { QueueEntry } from './wire.js';

/** An attempt that gets the lock from its cohort. */
interface Member {
  readonly holder: string;
  readonly token: bigint;
}

/**
 * A lock that the server has handed to several waiters of this process together, which hold it one after the other: each release
 * hands it to the next member here, without a round trip. (Lock cohorting, after Dice, Marathe and Shavit, PPoPP 2012.)
 *
 * It keeps the promise of a lock:
 * - The server has one holder, the first member, and its lease: under that name all renew, and the last one releases. So a caller is
 *   only let in by a hold on the server, and no longer than that is surely ours.
 * - The members are in the queue one behind the other, and stay there until the release of the last one takes out all that have held
 *   the lock. So the order of arrival stays, also when the cohort ends early.
 * - Each has a token of its own, taken from the counter at the handoff: larger than that of its predecessor, and smaller
 *   than every later one.
 * - Any uncertainty ends the cohort. Then the server serves the members that have not held the lock, as if it had never existed.
 */
export class Cohort {
  /** Of the hold on the server. Its end is not known before the first member has the lock. */
  readonly validity: LeaseValidity;
  readonly #served: Member[];

  constructor(
    private readonly entry: QueueEntry,
    /** The token that the server has for the lock: that of the first member. */
    readonly token: bigint,
    readonly waiting: Member[],
  ) {
    this.validity = new LeaseValidity(entry.lease, Infinity);
    this.#served = [{ holder: entry.holder, token }];
  }

  /** The holder under which the server has the lock. */
  get name(): string {
    return this.entry.holder;
  }

  get lock(): string {
    return this.entry.lock;
  }

  /** The members that have or had the lock, from the first on. */
  get served(): readonly string[] {
    return this.#served.map(({ holder }) => holder);
  }

  /** The member that has the lock, or is about to. */
  get current(): string {
    return this.#current.holder;
  }

  /** The token of `holder`, if it has the lock under the name of another member. */
  memberToken(holder: string): bigint | undefined {
    return this.#served.length > 1 && this.#current.holder === holder ? this.#current.token : undefined;
  }

  /**
   * Makes the next member that still waits the current one. Answers `undefined` when none is left, or when the lock is not surely ours
   * any more.
   */
  next(now: number, isWaiting: (holder: string) => boolean): Member | undefined {
    if (now >= this.validity.until) return undefined;
    let next = this.waiting.shift();
    while (next && !isWaiting(next.holder)) next = this.waiting.shift();
    if (next) this.#served.push(next);
    return next;
  }

  /** The ids of members that have to leave the queue, without `except`; `undefined` if none are left. */
  entryWithout(except?: string): QueueEntry | undefined {
    const { lock, mode, provisional } = this.entry;
    const lease = this.validity.longest;
    const holders = this.served.filter((holder) => holder !== except);
    return holders.length === 0 ? undefined : { lock, mode, provisional, lease, holder: holders.join(',') };
  }

  /** No other member gets the lock from it. Answers those that were to. */
  dissolve(): readonly Member[] {
    return this.waiting.splice(0);
  }

  get #current(): Member {
    return this.#served[this.#served.length - 1] as Member;
  }
}

/** All cohorts of this process, by the holder id of each member. */
export class Cohorts {
  readonly #of = new HolderTable<Cohort>();

  /** The cohort of which `holder` has the lock, had it, or is to have it. */
  of(holder: string): Cohort | undefined {
    return this.#of.get(holder);
  }

  add(cohort: Cohort): void {
    for (const holder of cohort.served) this.#of.set(holder, cohort);
    for (const { holder } of cohort.waiting) this.#of.set(holder, cohort);
  }

  /** The members that have not held the lock keep waiting, in their positions in the queue. */
  dissolve(cohort: Cohort): void {
    for (const { holder } of cohort.dissolve()) this.#of.delete(holder);
  }

  dissolveAll(): void {
    for (const cohort of new Set(this.#of.values())) this.dissolve(cohort);
  }

  /** The attempt is over. Answers its cohort if that ends with it, because it was the current member. */
  end(holder: string): Cohort | undefined {
    const cohort = this.#of.get(holder);
    if (cohort === undefined) return undefined;
    if (cohort.current !== holder) {
      const place = cohort.waiting.findIndex((member) => member.holder === holder);
      if (place >= 0) {
        cohort.waiting.splice(place, 1);
        this.#of.delete(holder);
      }
      return undefined;
    }
    this.dissolve(cohort);
    for (const each of cohort.served) this.#of.delete(each);
    return cohort;
  }

  clear(): void {
    this.#of.clear();
  }
}
