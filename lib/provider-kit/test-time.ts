import { systemClock } from '../core/toolkit/clock.js';
import type { Clock } from '../api/clock.js';
import type { FakeClock } from '../testing/fake-clock.js';

/** Time as a case sees it, so the same case works in real and fake time. */
export interface TestTime {
  readonly clock: Clock;
  /**
   * The multiplier for a harness's bounds. On a real clock, they are ten times as long, because the machine may be
   * busy: there, an upper bound only detects hangs.
   */
  readonly generosity: number;
  /** The fraction of its rounds that a case plays. On a real clock, each one requires round trips. */
  readonly share: number;
  /** How many times to try a case that fails if the machine stalls for longer than a lease. */
  readonly attempts: number;
  /** How late a timer or a round trip may be, in ms. */
  readonly tolerance: number;
  /** How long, in ms, a case waits to see that something doesn't happen, or after a lease has ended. */
  readonly pause: number;
  sleep(milliseconds: number): Promise<void>;
  /** Runs `work` and lets time pass until it has settled. */
  drive<T>(work: () => Promise<T>): Promise<T>;
}

/** A case that takes longer is considered hung. A test runner's timeout doesn't identify a case that started early. */
const LONGEST_CASE = 150_000;
// Fake time races ahead while a case waits for something real.
const LONGEST_FAKE_CASE = 600_000;

export function testTime(clock: FakeClock | undefined): TestTime {
  return clock ? new FakeTime(clock) : new RealTime();
}

class RealTime implements TestTime {
  readonly clock = systemClock;
  readonly generosity = 10;
  readonly share = 0.4;
  readonly attempts = 3;
  readonly tolerance = 3_000;
  readonly pause = 300;

  // Unlike the clock's timers, this one keeps the process alive, because runners without a timer of their own would
  // exit. Node's timers count in whole ms and may fire a fraction early.
  sleep(milliseconds: number): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, milliseconds > 0 ? Math.ceil(milliseconds) + 1 : 0));
  }

  async drive<T>(work: () => Promise<T>): Promise<T> {
    let timer: NodeJS.Timeout | undefined;
    const tooLong = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        reject(endless());
      }, LONGEST_CASE);
    });
    try {
      return await Promise.race([work(), tooLong]);
    } finally {
      clearTimeout(timer);
    }
  }
}

class FakeTime implements TestTime {
  readonly generosity = 1;
  readonly share = 1;
  readonly attempts = 1;
  readonly tolerance = 50;
  readonly pause = 50;

  constructor(readonly clock: FakeClock) {}

  sleep(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      this.clock.setTimer(resolve, milliseconds);
    });
  }

  async drive<T>(work: () => Promise<T>): Promise<T> {
    const settled = new AbortController();
    const result = work().finally(() => {
      settled.abort();
    });
    result.catch(() => undefined);
    const limit = this.clock.now() + LONGEST_FAKE_CASE;
    const realLimit = performance.now() + LONGEST_CASE;
    while (!settled.signal.aborted) {
      if (this.clock.now() >= limit || performance.now() >= realLimit) throw endless();
      await this.clock.advanceToNextTimer();
    }
    return result;
  }
}

function endless(): Error {
  return new Error('The case never finished: a request went unanswered.');
}
