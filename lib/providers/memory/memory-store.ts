import type { Clock, Timer } from '../../api/clock.js';
import type { LimitTerms, LockMode } from '../../api/lock-options.js';
import type { AcquireRequest } from '../../api/lock-provider.js';

/** Somebody who asks the store for a key. */
export type StoreRequest = Pick<AcquireRequest, 'holder' | 'mode' | 'limited' | 'lease' | 'minHold'>;

/** Somebody who has it. */
export interface StoredHold {
  readonly holder: string;
  readonly mode: LockMode;
  readonly limited: LimitTerms | undefined;
  /** Of a limited lock: the smallest limit of the others when it was granted, if that is not its own. */
  readonly otherLimit: number | undefined;
  readonly token: bigint;
  /** When the lease ends, on the monotonic clock. */
  expiresAt: number;
  /** Until when the key is kept at least. */
  readonly keepUntil: number;
  /** Released before that: nobody has it any more, and it excludes others as before until it expires. */
  isRetained: boolean;
  /** Called when the lock is taken away. */
  readonly onLost: () => void;
}

interface Waiter {
  readonly request: StoreRequest;
  readonly onLost: () => void;
  readonly serve: (hold: StoredHold | undefined) => void;
}

// The queue of every key that nobody has waited for: most locks never need one of their own.
const NOBODY = new Set<Waiter>();
// The limits of every key without limited locks.
const NO_LIMITS = new Map<number, number>();

/** One key: who has it, and who waits for it. */
class Slot {
  /** First come, first served. A Set keeps the order and lets a waiter in the middle leave at no cost. */
  waiters = NOBODY;
  timer: Timer | undefined;
  /** When the timer fires; `Infinity` without one. */
  wakesAt = Infinity;
  /** By holder. A key may have any number of them, so no operation of a single holder goes over all. */
  readonly #holds = new Map<string, StoredHold>();
  /** No hold ends before this time. It may be too early: a renewal does not move it. */
  #firstEnd = Infinity;
  /** How many are not retained. */
  #live = 0;
  #lastToken = 0n;
  /** What readers retain, as one hold: the longest time counts. */
  #retainedByReaders: StoredHold | undefined;
  /** How much limited holds take together. */
  #used = 0;
  /** How many limited holds have each limit: two limits while it is being changed. */
  #limits = NO_LIMITS;

  get holds(): readonly StoredHold[] {
    return [...this.#holds.values()];
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

  /** What this holder has, unless it has released it. */
  heldBy(holder: string): StoredHold | undefined {
    const hold = this.#holds.get(holder);
    return hold?.isRetained ? undefined : hold;
  }

  /** Readers that hold together share a token: none of them has overtaken another. */
  tokenOfReaders(mode: LockMode): bigint | undefined {
    return mode === 'shared' && this.#live > 0 ? this.#lastToken : undefined;
  }

  /** Of a limited lock: the smallest limit of the holders, if that is not its own. */
  otherLimit({ limited }: StoreRequest): number | undefined {
    const smallest = this.smallestLimit;
    return limited && smallest !== Infinity && smallest !== limited.limit ? smallest : undefined;
  }

  admits({ mode, limited }: StoreRequest): boolean {
    const oldest = this.#oldest;
    if (oldest === undefined) return true;
    if (mode === 'exclusive' || mode !== oldest.mode) return false;
    return limited === undefined || this.#used + limited.weight <= Math.min(this.smallestLimit, limited.limit);
  }

  add(hold: StoredHold): void {
    this.#holds.set(hold.holder, hold);
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

  get #oldest(): StoredHold | undefined {
    return this.isFree ? undefined : this.#holds.values().next().value;
  }

  #take({ limit, weight }: LimitTerms, sign: 1 | -1): void {
    this.#used += sign * weight;
    if (this.#limits === NO_LIMITS) this.#limits = new Map();
    const count = (this.#limits.get(limit) ?? 0) + sign;
    if (count === 0) this.#limits.delete(limit);
    else this.#limits.set(limit, count);
  }
}

/** What an operator sees of a key. */
interface SlotReport {
  /** Without those that are retained. */
  readonly holds: readonly StoredHold[];
  readonly mode: LockMode;
  readonly used: number;
  readonly smallestLimit: number;
  readonly waiters: number;
  /** When the key is free unless a lease is renewed, on the monotonic clock. */
  readonly endsAt: number;
}

// Expired keys that nobody asks for again are swept after as many grants as there are keys, and not more often than this:
// the store cannot grow without end, and a grant pays for one step of a sweep.
const SWEEP_AFTER = 1_000;

/** The locks of one process: the "server" behind `MemoryLockProvider`. Providers that are given the same store compete for the same locks. */
export class MemoryStore {
  readonly #slots = new Map<string, Slot>();
  #clock: Clock | undefined;
  #token = 0;
  #grantsSinceSweep = 0;

  /** Uses this clock from now on. All providers of one store must use the same. */
  use(clock: Clock): void {
    this.#clock ??= clock;
  }

  /** How many keys the store has, for tests of leaks. */
  get size(): number {
    return this.#slots.size;
  }

  /** The hold, if it can be had now: nobody excludes it, and nobody waits for the key. Asked again, a holder finds its own. */
  tryTake(key: string, request: StoreRequest, onLost: () => void): StoredHold | undefined {
    const slot = this.#slotOf(key);
    const now = this.#now();
    slot.expire(now);
    this.#serve(key, slot, now);
    const own = slot.heldBy(request.holder);
    if (own) return own;
    if (slot.waiters.size > 0 || !slot.admits(request)) return undefined;
    return this.#grant(slot, request, onLost, now);
  }

  /** Queues. `serve` is called once: with the hold, or with undefined when the waiter was released meanwhile. */
  wait(
    key: string,
    request: StoreRequest,
    onLost: () => void,
    serve: (hold: StoredHold | undefined) => void,
  ): { readonly otherLimit: number | undefined; leave(): void } {
    const slot = this.#slotOf(key);
    const waiter: Waiter = { request, onLost, serve };
    if (slot.waiters === NOBODY) slot.waiters = new Set();
    slot.waiters.add(waiter);
    this.#wake(key, slot, this.#now());
    return {
      otherLimit: slot.otherLimit(request),
      leave: () => {
        // Those behind one that leaves may be able to enter.
        if (slot.waiters.delete(waiter)) this.#refresh(key, slot, this.#now());
      },
    };
  }

  /** Renews a hold to `lease` ms from now; false when it is not held any more. */
  renew(key: string, holder: string, lease: number): boolean {
    const slot = this.#slots.get(key);
    if (!slot) return false;
    const now = this.#now();
    slot.expire(now);
    const hold = slot.heldBy(holder);
    if (hold) slot.endsAt(hold, Math.max(now + lease, hold.keepUntil));
    this.#refresh(key, slot, now);
    return hold !== undefined;
  }

  /** Ends a hold or a place in the queue; false when there was no such hold. */
  release(key: string, holder: string, keepFor: number): boolean {
    const slot = this.#slots.get(key);
    if (!slot) return false;
    const now = this.#now();
    slot.expire(now);
    const hold = slot.heldBy(holder);
    if (!hold) this.#dismiss(slot, holder);
    else if (keepFor > 0) slot.retain(hold, now + keepFor);
    else slot.remove(hold);
    this.#refresh(key, slot, now);
    return hold !== undefined;
  }

  /** Frees the key for all its holders; false when nobody had it. */
  free(key: string): boolean {
    const slot = this.#slots.get(key);
    if (!slot) return false;
    const now = this.#now();
    slot.expire(now);
    const { holds } = slot;
    for (const hold of holds) slot.remove(hold);
    this.#refresh(key, slot, now);
    // Last, when the store is as it will be: a listener may come back with another attempt.
    for (const hold of holds) if (!hold.isRetained) hold.onLost();
    return holds.length > 0;
  }

  /** What is known of a key that is not free. */
  look(key: string): SlotReport | undefined {
    const slot = this.#slots.get(key);
    if (!slot) return undefined;
    this.#refresh(key, slot, this.#now());
    if (slot.isFree) return undefined;
    const { holds: all, used, smallestLimit, waiters } = slot;
    const holds = all.filter(({ isRetained }) => !isRetained);
    const mode = all[0]?.mode ?? 'exclusive';
    const endsAt = all.reduce((latest, { expiresAt }) => Math.max(latest, expiresAt), 0);
    return { holds, mode, used, smallestLimit, waiters: waiters.size, endsAt };
  }

  /** Brings a slot up to date: what has run out ends, who may enter does, and what is of no use any more goes. */
  #refresh(key: string, slot: Slot, now: number): void {
    slot.expire(now);
    this.#serve(key, slot, now);
    this.#tidy(key, slot);
  }

  /** The single rule of the queue: from its head on, each waiter that may enter does. Every operation on a key runs it. */
  #serve(key: string, slot: Slot, now: number): void {
    for (const waiter of slot.waiters) {
      if (!slot.admits(waiter.request)) break;
      slot.waiters.delete(waiter);
      waiter.serve(this.#grant(slot, waiter.request, waiter.onLost, now));
    }
    this.#wake(key, slot, now);
  }

  #dismiss(slot: Slot, holder: string): void {
    for (const waiter of slot.waiters) {
      if (waiter.request.holder !== holder) continue;
      slot.waiters.delete(waiter);
      waiter.serve(undefined);
    }
  }

  #grant(slot: Slot, request: StoreRequest, onLost: () => void, now: number): StoredHold {
    const { holder, mode, limited, lease, minHold } = request;
    const hold: StoredHold = {
      holder,
      mode,
      limited,
      otherLimit: slot.otherLimit(request),
      token: slot.tokenOfReaders(mode) ?? this.#nextToken(),
      expiresAt: now + Math.max(lease, minHold),
      keepUntil: now + minHold,
      isRetained: false,
      onLost,
    };
    slot.add(hold);
    // After the hold is in its slot, because the sweep deletes empty slots.
    this.#grantsSinceSweep += 1;
    if (this.#grantsSinceSweep > Math.max(SWEEP_AFTER, this.#slots.size)) this.#sweep(now);
    return hold;
  }

  // A hybrid clock: it grows with each grant, and a new process starts above an old one as long as the wall clock does.
  #nextToken(): bigint {
    // Counted as a number, which is exact up to 2^53: microseconds until the year 2255.
    this.#token = Math.max(this.#token + 1, Math.floor((this.#clock?.wallTime() ?? 0) * 1000));
    return BigInt(this.#token);
  }

  /** Wakes when the next hold ends, if somebody waits for that. */
  #wake(key: string, slot: Slot, now: number): void {
    const clock = this.#clock;
    if (!clock) return;
    const wakesAt = slot.waiters.size === 0 ? Infinity : slot.firstEnd;
    if (wakesAt === slot.wakesAt) return;
    if (slot.timer) clock.clearTimer(slot.timer);
    slot.timer = undefined;
    slot.wakesAt = wakesAt;
    if (wakesAt === Infinity) return;
    const wake = () => {
      slot.timer = undefined;
      slot.wakesAt = Infinity;
      this.#refresh(key, slot, this.#now());
    };
    // Keeps the process alive: somebody waits for it.
    slot.timer = clock.setTimer(wake, Math.max(1, Math.ceil(wakesAt - now)), true);
  }

  #slotOf(key: string): Slot {
    let slot = this.#slots.get(key);
    if (!slot) {
      slot = new Slot();
      this.#slots.set(key, slot);
    }
    return slot;
  }

  #tidy(key: string, slot: Slot): void {
    if (slot.waiters.size === 0 && slot.isFree) this.#slots.delete(key);
  }

  #sweep(now: number): void {
    this.#grantsSinceSweep = 0;
    for (const [key, slot] of this.#slots) {
      slot.expire(now);
      this.#tidy(key, slot);
    }
  }

  #now(): number {
    return this.#clock?.now() ?? 0;
  }
}
