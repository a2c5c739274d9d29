import type { Clock } from '../../api/clock.js';
import type { Instance } from '../../api/lock-provider.js';
import type { LockMode } from '../../api/lock-mode.js';
import { ExpiringTexts } from './expiring-texts.js';
import { Slot, type Waiter } from './slot.js';
import type { StoredHold, StoreRequest } from './stored-hold.js';

/** A key, as an operator sees it. */
export interface SlotReport {
  /** Without those that are retained. */
  readonly holds: readonly StoredHold[];
  readonly mode: LockMode;
  readonly used: number;
  readonly smallestLimit: number;
  readonly waiters: number;
  /** When the key is free unless a lease is renewed, on the monotonic clock. */
  readonly endsAt: number;
}

interface WaitText {
  readonly text: string;
  /** When it is over, in ms since 1970. */
  readonly until: number;
}

// Expired keys that nobody asks for again are swept after as many grants as there are keys, and not more often than this:
// the store cannot grow without end, and a grant pays for one step of a sweep.
const SWEEP_AFTER = 1_000;

/** For how long a record is kept after its last write, in ms: 400 days, as on Redis, so that a job that runs once a year is remembered. */
const KEEP_RECORDS = 400 * 86_400_000;

/** The locks of one process: the "server" behind `MemoryLockProvider`. Providers that are given the same store compete for the same locks. */
export class MemoryStore {
  /** @internal The values of records, by their names with the namespace. */
  readonly records = new ExpiringTexts(KEEP_RECORDS, () => this.#now());
  /** @internal The records of what processes wait for, by their names with the namespace. */
  readonly texts = new Map<string, WaitText>();
  readonly #slots = new Map<string, Slot>();
  /** The names of the applications that use it, by id. */
  readonly #instances = new Map<string, string>();
  #clock: Clock | undefined;
  #token = 0;
  #grantsSinceSweep = 0;

  /** @internal Uses this clock from now on. All providers of one store must use the same. */
  use(clock: Clock): void {
    this.#clock ??= clock;
  }

  /** @internal The time of this "server", in ms since 1970. */
  wallTime(): number {
    return this.#clock?.wallTime() ?? 0;
  }

  /** @internal The keys that begin with this, as they are now: one that is freed and taken again would come again and again from the map. */
  keys(prefix: string): readonly string[] {
    return Array.from(this.#slots.keys()).filter((key) => key.startsWith(prefix));
  }

  /** @internal An application uses it from now on. */
  enter({ id, name }: Instance): void {
    this.#instances.set(id, name);
  }

  /** @internal The application has stopped. Another of its providers may still use the store: then its id is shown instead of its name. */
  leave({ id }: Instance): void {
    this.#instances.delete(id);
  }

  /** @internal The name of an application, or its id if it has stopped. */
  nameOf(id: string): string {
    return this.#instances.get(id) ?? id;
  }

  /** @internal How many keys the store has, for tests of leaks. */
  get size(): number {
    return this.#slots.size;
  }

  /** @internal The hold, if it can be had now: nobody excludes it, and nobody waits for the key. Asked again, a holder finds its own. */
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

  /** @internal Queues. `serve` is called once: with the hold, or with undefined when the waiter was released meanwhile. Answers how to leave. */
  wait(key: string, request: StoreRequest, serve: (hold: StoredHold | undefined) => void): () => void {
    const slot = this.#slotOf(key);
    const now = this.#now();
    const waiter: Waiter = { request, since: request.since, serve };
    slot.enqueue(waiter);
    this.#wake(key, slot, now);
    return () => {
      // Those behind one that leaves may be able to enter.
      if (slot.dequeue(waiter)) this.#refresh(key, slot, this.#now());
    };
  }

  /** @internal Renews a hold to `lease` ms from now; false when it is not held any more. */
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

  /** @internal Ends a hold or a place in the queue; false when there was no such hold. */
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

  /** @internal Frees the key for all its holders; false when nobody had it. */
  free(key: string): boolean {
    const slot = this.#slots.get(key);
    if (!slot) return false;
    const now = this.#now();
    slot.expire(now);
    const { holds } = slot;
    for (const hold of holds) slot.remove(hold);
    this.#refresh(key, slot, now);
    // Last, when the store is as it will be: a listener may come back with another request.
    for (const hold of holds) if (!hold.isRetained) hold.request.lost();
    return holds.length > 0;
  }

  /** @internal The state of a key that is not free. */
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

  /** @internal The hold of a key, or one of several, and how many there are: without those that are retained, and as they were last brought up to date. */
  holding(key: string): { readonly hold: StoredHold; readonly holders: number } | undefined {
    const slot = this.#slots.get(key);
    const hold = slot?.anyLive;
    return slot && hold && { hold, holders: slot.live };
  }

  /** @internal The holder writes its label: what it wrote ends with its hold. */
  label(key: string, holder: string, text: string): void {
    const hold = this.#slots.get(key)?.heldBy(holder);
    if (hold) hold.label = text;
  }

  /** @internal The label of the one holder of a key. */
  labelOf(key: string): string | undefined {
    const slot = this.#slots.get(key);
    if (!slot) return undefined;
    this.#refresh(key, slot, this.#now());
    return slot.anyLive?.label;
  }

  /** @internal Whether the holders of a key leave room for one more. */
  protected admits(slot: Slot, request: StoreRequest): boolean {
    return slot.admits(request);
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
    // After the hold is in its slot, because the sweep deletes empty slots.
    this.#grantsSinceSweep += 1;
    if (this.#grantsSinceSweep > Math.max(SWEEP_AFTER, this.#slots.size)) this.#sweep(now);
    return hold;
  }

  // A hybrid clock: it grows with each grant, and a new process starts above an old one as long as the wall clock does.
  #nextToken(): bigint {
    // Counted as a number, which is exact up to 2^53: microseconds until the year 2255.
    this.#token = Math.max(this.#token + 1, Math.floor(this.wallTime() * 1000));
    return BigInt(this.#token);
  }

  /** Wakes when the next hold ends, if somebody waits for that. */
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
