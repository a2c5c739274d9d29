import type { Timer } from '../../api/clock.js';
import type { LimitShare, LockMode } from '../../api/lock-mode.js';
import { Holders } from './holders.js';
import type { StoredHold, StoreRequest } from './stored-hold.js';

/** Somebody in the queue of a key. */
export interface Waiter {
  readonly request: StoreRequest;
  /** When its oldest caller came, on the monotonic clock. */
  readonly since: number;
  readonly serve: (hold: StoredHold | undefined) => void;
}

// The queue of every key that nobody has waited for: most locks never need one of their own.
const NOBODY: readonly Waiter[] = [];
// The limits of every key without limited locks.
const NO_LIMITS = new Map<number, number>();

/** One key: who has it, and who waits for it. */
export class Slot {
  /** By age, the oldest first: at most one for each application and depth of nesting. */
  waiters = NOBODY;
  timer: Timer | undefined;
  /** When the timer fires; `Infinity` without one. */
  wakesAt = Infinity;
  readonly #holds = new Holders();
  /** No hold ends before this time. It may be too early: a renewal does not move it. */
  #firstEnd = Infinity;
  /** How many are not retained. */
  #live = 0;
  #lastToken = 0n;
  /** The time for which readers retain the key, as one hold: the longest counts. */
  #retainedByReaders: StoredHold | undefined;
  /** How much limited holds take together. */
  #used = 0;
  /** How many limited holds have each limit: two limits while it is being changed. */
  #limits = NO_LIMITS;

  get holds(): readonly StoredHold[] {
    return [...this.#holds.values()];
  }

  /** How many are not retained. */
  get live(): number {
    return this.#live;
  }

  /** One that is not retained. */
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

  /** Of limited holds; `Infinity` without one. */
  get smallestLimit(): number {
    return Math.min(...this.#limits.keys());
  }

  /** The hold of this holder, unless it has released it. */
  heldBy(holder: string): StoredHold | undefined {
    const hold = this.#holds.get(holder);
    return hold?.isRetained ? undefined : hold;
  }

  /** Readers that hold together share a token: none of them has overtaken another. */
  tokenOfReaders(mode: LockMode): bigint | undefined {
    return mode === 'shared' && this.#live > 0 ? this.#lastToken : undefined;
  }

  enqueue(waiter: Waiter): void {
    const behind = this.waiters.findLastIndex(({ since }) => since <= waiter.since) + 1;
    this.waiters = this.waiters.toSpliced(behind, 0, waiter);
  }

  /** Answers whether it was queued. */
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

  /** Nobody has it any more, and it excludes others as before until then. */
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

  /** Moves the end of a hold. */
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

  /** Removes what has run out. */
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
