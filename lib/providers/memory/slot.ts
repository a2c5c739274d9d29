import type { Timer } from '../../api/clock.js';
import type { LimitShare, LockMode } from '../../api/lock-mode.js';
import { Holders } from './holders.js';
import type { StoredHold, StoreRequest } from './stored-hold.js';

/** A request in a key's queue. */
export interface Waiter {
  readonly request: StoreRequest;
  /** When the request's oldest caller started waiting. */
  readonly since: number;
  readonly serve: (hold: StoredHold | undefined) => void;
}

// Shared by all keys without waiters: most locks never need a queue.
const NO_WAITERS: readonly Waiter[] = [];
// Shared by all keys without limited locks.
const NO_LIMITS = new Map<number, number>();

/** One key's holders and waiters. */
export class Slot {
  /** Oldest first. At most one per application and nesting depth. */
  waiters = NO_WAITERS;
  timer: Timer | undefined;
  /** When the timer fires, or `Infinity` if it isn't set. */
  wakesAt = Infinity;
  readonly #holds = new Holders();
  /** A lower bound on the first expiry. It can be too early, because renewals don't update it. */
  #firstEnd = Infinity;
  /** The number of holds that aren't retained. */
  #live = 0;
  #lastToken = 0n;
  /** One hold for all retained readers, which ends when the last one does. */
  #retainedByReaders: StoredHold | undefined;
  /** The total weight of limited holds. */
  #used = 0;
  /** The number of limited holds per limit. Two limits can coexist while the configured limit is being changed. */
  #limits = NO_LIMITS;

  get holds(): readonly StoredHold[] {
    return [...this.#holds.values()];
  }

  /** The number of holds that aren't retained. */
  get live(): number {
    return this.#live;
  }

  /** Any hold that isn't retained. */
  get anyLive(): StoredHold | undefined {
    if (this.#live === 0) return undefined;
    for (const hold of this.#holds.values()) if (!hold.isRetained) return hold;
    return undefined;
  }

  get isFree(): boolean {
    return this.#holds.size === 0;
  }

  get firstEnd(): number {
    return this.#firstEnd;
  }

  get used(): number {
    return this.#used;
  }

  /** The smallest limit of the limited holds, or `Infinity` if there are none. */
  get smallestLimit(): number {
    return Math.min(...this.#limits.keys());
  }

  /** This holder's hold, unless it's retained. */
  heldBy(holder: string): StoredHold | undefined {
    const hold = this.#holds.get(holder);
    return hold?.isRetained ? undefined : hold;
  }

  /** Concurrent readers share a token, because none of them supersedes another. */
  tokenOfReaders(mode: LockMode): bigint | undefined {
    return mode === 'shared' && this.#live > 0 ? this.#lastToken : undefined;
  }

  enqueue(waiter: Waiter): void {
    const behind = this.waiters.findLastIndex(({ since }) => since <= waiter.since) + 1;
    this.waiters = this.waiters.toSpliced(behind, 0, waiter);
  }

  /** Returns whether the waiter was in the queue. */
  dequeue(waiter: Waiter): boolean {
    if (!this.waiters.includes(waiter)) return false;
    this.waiters = this.waiters.filter((each) => each !== waiter);
    return true;
  }

  admits({ mode, limited }: StoreRequest): boolean {
    const { oldest } = this.#holds;
    if (oldest === undefined) return true;
    if (mode === 'exclusive' || mode !== oldest.mode) return false;
    return limited === undefined || this.#used + limited.weight <= Math.min(this.smallestLimit, limited.limit);
  }

  add(hold: StoredHold): void {
    this.#holds.add(hold);
    this.#live += 1;
    this.#lastToken = hold.token;
    this.endsAt(hold, hold.expiresAt);
    if (hold.limited) this.#take(hold.limited, 1);
  }

  /** Ends a hold but keeps excluding others until `until`. */
  retain(hold: StoredHold, until: number): void {
    const retained = this.#retainedByReaders;
    if (hold.mode === 'shared' && retained) {
      this.remove(hold);
      this.endsAt(retained, Math.max(retained.expiresAt, until));
      return;
    }
    hold.isRetained = true;
    this.#live -= 1;
    this.endsAt(hold, until);
    if (hold.mode === 'shared') this.#retainedByReaders = hold;
  }

  endsAt(hold: StoredHold, time: number): void {
    hold.expiresAt = time;
    this.#firstEnd = Math.min(this.#firstEnd, time);
  }

  remove(hold: StoredHold): void {
    this.#holds.delete(hold.holder);
    if (hold === this.#retainedByReaders) this.#retainedByReaders = undefined;
    if (!hold.isRetained) this.#live -= 1;
    if (hold.limited) this.#take(hold.limited, -1);
    if (this.isFree) this.#firstEnd = Infinity;
  }

  expire(now: number): void {
    if (now < this.#firstEnd) return;
    this.#firstEnd = Infinity;
    for (const hold of this.#holds.values()) {
      if (hold.expiresAt <= now) this.remove(hold);
      else this.#firstEnd = Math.min(this.#firstEnd, hold.expiresAt);
    }
  }

  #take({ limit, weight }: LimitShare, sign: 1 | -1): void {
    this.#used += sign * weight;
    if (this.#limits === NO_LIMITS) this.#limits = new Map();
    const count = (this.#limits.get(limit) ?? 0) + sign;
    if (count === 0) this.#limits.delete(limit);
    else this.#limits.set(limit, count);
  }
}
