import type { Clock, Timer } from '../api/clock.js';
import { setImmediate } from '../core/toolkit/real-timers.js';

interface FakeTimer {
  readonly at: number;
  readonly callback: () => void;
}

/**
 * A clock that stands still until the test advances it.
 *
 * @example
 * ```ts
 * const clock = new FakeClock();
 * const locks = new LockManager({ providers: { memory: new MemoryLockProvider() }, clock });
 * await clock.advance(30_000);
 * ```
 */
export class FakeClock implements Clock {
  #now = 0;
  #suspended = 0;
  #wallOffset: number;
  readonly #timers = new Set<FakeTimer>();

  /** @param wallTime what the wall clock shows at the start, in ms since the epoch. */
  constructor(wallTime = Date.UTC(2026, 0, 1)) {
    this.#wallOffset = wallTime;
  }

  now(): number {
    return this.#now;
  }

  uptime(): number {
    return this.#now + this.#suspended;
  }

  wallTime(): number {
    return this.#now + this.#wallOffset;
  }

  setTimer(callback: () => void, delay: number): Timer {
    const timer: FakeTimer = { at: this.#now + Math.max(delay, 0), callback };
    this.#timers.add(timer);
    return timer;
  }

  clearTimer(timer: Timer): void {
    this.#timers.delete(timer as FakeTimer);
  }

  /** How many timers are armed. */
  get pendingTimers(): number {
    return this.#timers.size;
  }

  /** Advances by `milliseconds`. Fires each timer when it is due and then lets promises settle. */
  async advance(milliseconds: number): Promise<void> {
    const end = this.#now + milliseconds;
    await settle();
    for (let timer = this.#next(end); timer; timer = this.#next(end)) {
      this.#now = Math.max(this.#now, timer.at);
      this.#timers.delete(timer);
      timer.callback();
      await settle();
    }
    // Another call to advance() may have moved the clock further.
    this.#now = Math.max(this.#now, end);
    await settle();
  }

  /** Advances to the time of the next timer and fires it. If no timer is armed, only lets promises settle. */
  async advanceToNextTimer(): Promise<void> {
    for (let turn = 0; turn < TURNS; turn += 1) await settle();
    await this.advance(Math.max(0, (this.#next(Infinity)?.at ?? this.#now) - this.#now));
  }

  /** Lets time pass while nothing runs, as in a blocked event loop or a stopped process. Timers then fire late. */
  block(milliseconds: number): void {
    this.#now += milliseconds;
  }

  /** Suspends the machine: the monotonic clock stops, while the time since boot and the wall clock keep running. */
  suspend(milliseconds: number): void {
    this.#suspended += milliseconds;
    this.#wallOffset += milliseconds;
  }

  /** Steps the wall clock, as an operator or NTP would. */
  stepWallTime(milliseconds: number): void {
    this.#wallOffset += milliseconds;
  }

  #next(end: number): FakeTimer | undefined {
    let next: FakeTimer | undefined;
    for (const timer of this.#timers) if (timer.at <= end && (next === undefined || timer.at < next.at)) next = timer;
    return next;
  }
}

// Lets work that needs a few event-loop turns finish before time advances.
const TURNS = 4;

// Long enough for any chain of promises between two timers: setImmediate runs after all of them.
async function settle(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}
