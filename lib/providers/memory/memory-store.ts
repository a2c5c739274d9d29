import type { Clock } from '../../api/clock.js';
import type { Instance } from '../../api/lock-provider.js';
import type { LockMode } from '../../api/lock-mode.js';
import { ExpiringTexts } from './expiring-texts.js';
import { Slot, type Waiter } from './slot.js';
import type { StoredHold, StoreRequest } from './stored-hold.js';

/** A key's state, for `inspect` and `list`. */
export interface SlotReport {
  /** Excludes retained holds. */
  readonly holds: readonly StoredHold[];
  readonly mode: LockMode;
  readonly used: number;
  readonly smallestLimit: number;
  readonly waiters: number;
  /** When the key becomes free if no lease is renewed. */
  readonly endsAt: number;
}

// A sweep removes expired keys that no one requests again, so the store can't grow forever. A sweep runs after as many
// grants as there are keys, and at least this many, so each grant pays for about one step.
const SWEEP_AFTER = 1_000;

/** Records expire 400 days after their last write, as on Redis, so a yearly job is not forgotten. */
const KEEP_RECORDS = 400 * 86_400_000;

/**
 * Holds one process's locks, acting as the server for `MemoryLockProvider`. Providers with the same store compete for
 * the same locks.
 */
export class MemoryStore {
  /** @internal Job records by name, including the namespace. */
  readonly records = new ExpiringTexts(() => this.#now(), KEEP_RECORDS);
  /** @internal What each process is waiting for, by name, including the namespace. */
  readonly texts = new ExpiringTexts(() => this.#now());
  readonly #slots = new Map<string, Slot>();
  /** Names of the applications that use this store, by instance id. */
  readonly #instances = new Map<string, string>();
  #clock: Clock | undefined;
  #token = 0;
  #grantsSinceSweep = 0;

  /** @internal Sets the clock. All of a store's providers must use the same one, so only the first call counts. */
  use(clock: Clock): void {
    this.#clock ??= clock;
  }

  /** @internal The wall clock. */
  wallTime(): number {
    return this.#clock?.wallTime() ?? 0;
  }

  /**
   * @internal A snapshot of the keys with this prefix. Iterating over the live map could keep returning a key that is
   * repeatedly released and reacquired.
   */
  keys(prefix: string): readonly string[] {
    return Array.from(this.#slots.keys()).filter((key) => key.startsWith(prefix));
  }

  /** @internal Registers an application. */
  enter({ id, name }: Instance): void {
    this.#instances.set(id, name);
  }

  /**
   * @internal Unregisters an application. If another of its providers still uses the store, listings show its id
   * instead of its name.
   */
  leave({ id }: Instance): void {
    this.#instances.delete(id);
  }

  /** @internal An application's name, or its id if it has stopped. */
  nameOf(id: string): string {
    return this.#instances.get(id) ?? id;
  }

  /** @internal The number of keys, for leak tests. */
  get size(): number {
    return this.#slots.size;
  }

  /**
   * @internal Grants the key if it is available and no one is queued for it. If the request already holds the key,
   * returns that hold.
   */
  tryTake(key: string, request: StoreRequest): StoredHold | undefined {
    const slot = this.#slotOf(key);
    const now = this.#now();
    slot.expire(now);
    this.#serve(key, slot, now);
    const own = slot.heldBy(request.id);
    if (own) return own;
    if (slot.waiters.length > 0 || !this.admits(slot, request)) return undefined;
    return this.#grant(slot, request, now);
  }

  /**
   * @internal Queues a request. Calls `serve` once: with the hold, or with undefined if the request is released
   * first. Returns a function that dequeues the request.
   */
  wait(key: string, request: StoreRequest, serve: (hold: StoredHold | undefined) => void): () => void {
    const slot = this.#slotOf(key);
    const now = this.#now();
    const waiter: Waiter = { request, since: request.since, serve };
    slot.enqueue(waiter);
    this.#wake(key, slot, now);
    return () => {
      // The waiters behind this one may now get the lock.
      if (slot.dequeue(waiter)) this.#refresh(key, slot, this.#now());
    };
  }

  /** @internal Extends a hold to `lease` from now, but never shortens it. Returns false if it is no longer held. */
  renew(key: string, holder: string, lease: number): boolean {
    const slot = this.#slots.get(key);
    if (!slot) return false;
    const now = this.#now();
    slot.expire(now);
    const hold = slot.heldBy(holder);
    if (hold) slot.endsAt(hold, Math.max(now + lease, hold.expiresAt, hold.keepUntil));
    this.#refresh(key, slot, now);
    return hold !== undefined;
  }

  /** @internal Ends a hold or dequeues the request. Returns false if there was no hold. */
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

  /** @internal Frees the key, whoever holds it. Returns false if it was free. */
  free(key: string): boolean {
    const slot = this.#slots.get(key);
    if (!slot) return false;
    const now = this.#now();
    slot.expire(now);
    const { holds } = slot;
    for (const hold of holds) slot.remove(hold);
    this.#refresh(key, slot, now);
    // Notify last, when the store is consistent: a listener may immediately send another request.
    for (const hold of holds) if (!hold.isRetained) hold.request.lost();
    return holds.length > 0;
  }

  /** @internal A key's state; undefined if the key is free. */
  report(key: string): SlotReport | undefined {
    const slot = this.#slots.get(key);
    if (!slot) return undefined;
    this.#refresh(key, slot, this.#now());
    if (slot.isFree) return undefined;
    const { holds: all, used, smallestLimit, waiters } = slot;
    const holds = all.filter(({ isRetained }) => !isRetained);
    const mode = all[0]?.mode ?? 'exclusive';
    const endsAt = all.reduce((latest, { expiresAt }) => Math.max(latest, expiresAt), 0);
    return { holds, mode, used, smallestLimit, waiters: waiters.length, endsAt };
  }

  /**
   * @internal Any one of a key's holds, and its holder count (both exclude retained holds). Does not remove expired
   * holds first.
   */
  holding(key: string): { readonly hold: StoredHold; readonly holders: number } | undefined {
    const slot = this.#slots.get(key);
    const hold = slot?.anyLive;
    return slot && hold && { hold, holders: slot.live };
  }

  /** @internal Stores a holder's trace label, which is removed with the hold. */
  label(key: string, holder: string, text: string): void {
    const hold = this.#slots.get(key)?.heldBy(holder);
    if (hold) hold.label = text;
  }

  /** @internal The trace label of a key's holder. */
  labelOf(key: string): string | undefined {
    const slot = this.#slots.get(key);
    if (!slot) return undefined;
    this.#refresh(key, slot, this.#now());
    return slot.anyLive?.label;
  }

  /** @internal Whether the current holders leave room for this request. */
  protected admits(slot: Slot, request: StoreRequest): boolean {
    return slot.admits(request);
  }

  /** Removes expired holds, grants the key to eligible waiters, and deletes the slot if it's unused. */
  #refresh(key: string, slot: Slot, now: number): void {
    slot.expire(now);
    this.#serve(key, slot, now);
    this.#tidy(key, slot);
  }

  /** Grants the key to waiters in order until one must keep waiting. Every operation on a key calls this. */
  #serve(key: string, slot: Slot, now: number): void {
    for (const waiter of slot.waiters) {
      if (!this.admits(slot, waiter.request)) break;
      slot.dequeue(waiter);
      waiter.serve(this.#grant(slot, waiter.request, now));
    }
    this.#wake(key, slot, now);
  }

  #dismiss(slot: Slot, holder: string): void {
    for (const waiter of slot.waiters) {
      if (waiter.request.id !== holder) continue;
      slot.dequeue(waiter);
      waiter.serve(undefined);
    }
  }

  #grant(slot: Slot, request: StoreRequest, now: number): StoredHold {
    const { id, mode, limited, lease, minHold } = request;
    const hold: StoredHold = {
      holder: id,
      mode,
      limited,
      token: slot.tokenOfReaders(mode) ?? this.#nextToken(),
      expiresAt: now + Math.max(lease, minHold),
      keepUntil: now + minHold,
      isRetained: false,
      request,
    };
    slot.add(hold);
    // Sweep only after the hold is in its slot, because a sweep deletes empty slots.
    this.#grantsSinceSweep += 1;
    if (this.#grantsSinceSweep > Math.max(SWEEP_AFTER, this.#slots.size)) this.#sweep(now);
    return hold;
  }

  // A hybrid logical clock: tokens increase with every grant, and across restarts unless the wall clock goes backward.
  #nextToken(): bigint {
    // A number is exact up to 2^53, enough to count microseconds until the year 2255.
    this.#token = Math.max(this.#token + 1, Math.floor(this.wallTime() * 1000));
    return BigInt(this.#token);
  }

  /** Sets a timer for the next expiry if the key has waiters. */
  #wake(key: string, slot: Slot, now: number): void {
    const clock = this.#clock;
    if (!clock) return;
    const wakesAt = slot.waiters.length === 0 ? Infinity : slot.firstEnd;
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
    // A referenced timer keeps a process with waiters alive.
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
    if (slot.waiters.length === 0 && slot.isFree) this.#slots.delete(key);
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
