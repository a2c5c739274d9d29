import type { LockMode } from '../../api/lock-options.js';
import type { Clock, Timer } from '../../api/clock.js';

/** Somebody who asks the store for a key. */
export interface StoreRequest {
  readonly holder: string;
  readonly mode: LockMode;
  readonly lease: number;
  readonly minHold: number;
}

/** Somebody who has it. */
export interface StoredHold {
  readonly holder: string;
  readonly mode: LockMode;
  readonly token: bigint;
  /** When the lease ends, on the monotonic clock. */
  expiresAt: number;
  /** Until when the key is kept at least. */
  readonly keepUntil: number;
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

/** One key: who has it, and who waits for it. */
class Slot {
  /** By holder, the oldest first. A key may have any number of readers, so no operation goes over all of them. */
  readonly holds = new Map<string, StoredHold>();
  /** No hold ends before this time. It may be too early: a renewal does not move it. */
  firstEnd = Infinity;
  /** First come, first served. A Set keeps the order and lets a waiter in the middle leave at no cost. */
  waiters = NOBODY;
  /** Until when the key is retained; 0 for a key that is not. */
  retainedUntil = 0;
  /** The mode of the locks that have retained it: after a shared one it admits readers. */
  retainedMode: LockMode = 'exclusive';
  timer: Timer | undefined;
  /** When the timer fires; `Infinity` without one. */
  wakesAt = Infinity;
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

  /** The hold, if it can be had now: nobody has it, and nobody waits for it. Asked again, a holder finds its own. */
  tryTake(key: string, request: StoreRequest, onLost: () => void): StoredHold | undefined {
    const slot = this.#slotOf(key);
    const now = this.#now();
    this.#expire(slot, now);
    this.#serve(key, slot, now);
    const own = slot.holds.get(request.holder);
    if (own) return own;
    if (slot.waiters.size > 0 || !admits(slot, request.mode)) return undefined;
    return this.#grant(slot, request, onLost, now);
  }

  /** Queues. `serve` is called once: with the hold, or with undefined when the waiter was released meanwhile. */
  wait(
    key: string,
    request: StoreRequest,
    onLost: () => void,
    serve: (hold: StoredHold | undefined) => void,
  ): { leave(): void } {
    const slot = this.#slotOf(key);
    const waiter: Waiter = { request, onLost, serve };
    if (slot.waiters === NOBODY) slot.waiters = new Set();
    slot.waiters.add(waiter);
    this.#wake(key, slot, this.#now());
    return {
      leave: () => {
        // Readers behind a writer that leaves may enter.
        if (slot.waiters.delete(waiter)) this.#refresh(key, slot, this.#now());
      },
    };
  }

  /** Renews a hold to `lease` ms from now; false when it is not held any more. */
  renew(key: string, holder: string, lease: number): boolean {
    const slot = this.#slots.get(key);
    if (!slot) return false;
    const now = this.#now();
    this.#expire(slot, now);
    const hold = slot.holds.get(holder);
    if (hold) {
      hold.expiresAt = Math.max(now + lease, hold.keepUntil);
      slot.firstEnd = Math.min(slot.firstEnd, hold.expiresAt);
    }
    this.#refresh(key, slot, now);
    return hold !== undefined;
  }

  /** Ends a hold or a place in the queue; false when there was no such hold. */
  release(key: string, holder: string, keepFor: number): boolean {
    const slot = this.#slots.get(key);
    if (!slot) return false;
    const now = this.#now();
    this.#expire(slot, now);
    const hold = slot.holds.get(holder);
    if (hold) {
      slot.holds.delete(holder);
      if (slot.holds.size === 0) slot.firstEnd = Infinity;
      if (keepFor > 0) {
        slot.retainedUntil = Math.max(slot.retainedUntil, now + keepFor);
        slot.retainedMode = hold.mode;
      }
    } else {
      for (const waiter of slot.waiters) {
        if (waiter.request.holder !== holder) continue;
        slot.waiters.delete(waiter);
        waiter.serve(undefined);
      }
    }
    this.#refresh(key, slot, now);
    return hold !== undefined;
  }

  /** Frees the key for all its holders; false when nobody had it. */
  free(key: string): boolean {
    const slot = this.#slots.get(key);
    if (!slot) return false;
    const now = this.#now();
    this.#expire(slot, now);
    const had = !isFree(slot);
    const holds = [...slot.holds.values()];
    slot.holds.clear();
    slot.firstEnd = Infinity;
    slot.retainedUntil = 0;
    this.#refresh(key, slot, now);
    // Last, when the store is as it will be: a listener may come back with another attempt.
    for (const hold of holds) hold.onLost();
    return had;
  }

  /** What is known of a key that is not free. */
  look(key: string):
    | {
        readonly holds: readonly StoredHold[];
        readonly mode: LockMode;
        readonly waiters: number;
        readonly endsAt: number;
      }
    | undefined {
    const slot = this.#slots.get(key);
    if (!slot) return undefined;
    this.#refresh(key, slot, this.#now());
    if (isFree(slot)) return undefined;
    const holds = [...slot.holds.values()];
    const endsAt = holds.reduce((latest, hold) => Math.max(latest, hold.expiresAt), slot.retainedUntil);
    return { holds, mode: holds[0]?.mode ?? slot.retainedMode, waiters: slot.waiters.size, endsAt };
  }

  /** Brings a slot up to date: what has run out ends, who may enter does, and what is of no use any more goes. */
  #refresh(key: string, slot: Slot, now: number): void {
    this.#expire(slot, now);
    this.#serve(key, slot, now);
    this.#tidy(key, slot);
  }

  /** The single rule of the queue: from its head on, each waiter that may enter does. Every operation on a key runs it. */
  #serve(key: string, slot: Slot, now: number): void {
    for (const waiter of slot.waiters) {
      if (!admits(slot, waiter.request.mode)) break;
      slot.waiters.delete(waiter);
      waiter.serve(this.#grant(slot, waiter.request, waiter.onLost, now));
    }
    this.#wake(key, slot, now);
  }

  #grant(slot: Slot, request: StoreRequest, onLost: () => void, now: number): StoredHold {
    const hold: StoredHold = {
      holder: request.holder,
      mode: request.mode,
      // Readers that hold together share a token: none of them has overtaken another.
      token: oldestOf(slot)?.token ?? this.#nextToken(),
      expiresAt: now + Math.max(request.lease, request.minHold),
      keepUntil: now + request.minHold,
      onLost,
    };
    slot.holds.set(hold.holder, hold);
    slot.firstEnd = Math.min(slot.firstEnd, hold.expiresAt);
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

  #expire(slot: Slot, now: number): void {
    if (slot.retainedUntil <= now) slot.retainedUntil = 0;
    if (now < slot.firstEnd) return;
    slot.firstEnd = Infinity;
    for (const hold of slot.holds.values()) {
      if (hold.expiresAt <= now) slot.holds.delete(hold.holder);
      else slot.firstEnd = Math.min(slot.firstEnd, hold.expiresAt);
    }
  }

  /** Wakes when the next hold or the retention ends, if somebody waits for that. */
  #wake(key: string, slot: Slot, now: number): void {
    const clock = this.#clock;
    if (!clock) return;
    const wakesAt = slot.waiters.size === 0 ? Infinity : Math.min(slot.firstEnd, slot.retainedUntil || Infinity);
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
    if (slot.waiters.size === 0 && isFree(slot)) this.#slots.delete(key);
  }

  #sweep(now: number): void {
    this.#grantsSinceSweep = 0;
    for (const [key, slot] of this.#slots) {
      this.#expire(slot, now);
      this.#tidy(key, slot);
    }
  }

  #now(): number {
    return this.#clock?.now() ?? 0;
  }
}

// What follows holds of a slot that was brought up to date.

function admits(slot: Slot, mode: LockMode): boolean {
  if (isFree(slot)) return true;
  return mode === 'shared' && (oldestOf(slot)?.mode ?? slot.retainedMode) === 'shared';
}

function isFree(slot: Slot): boolean {
  return slot.holds.size === 0 && slot.retainedUntil === 0;
}

function oldestOf(slot: Slot): StoredHold | undefined {
  return slot.holds.size === 0 ? undefined : slot.holds.values().next().value;
}
