import { systemClock } from '../../engine/clock.js';
import type { Clock } from '../../engine/lock-provider.js';
import type { FakeClock } from '../fake-clock.js';
import { type StarvationWatch, watchStarvation } from './starvation.js';

/** Time as a case sees it, so that a case is written once for real and for fake time. */
export interface TestTime {
  readonly clock: Clock;
  /** How much later than due a timer and a round trip may be, in ms. */
  readonly slack: number;
  sleep(milliseconds: number): Promise<void>;
  watch(): StarvationWatch;
  /** Does `work`, and lets time pass until it has settled. */
  drive<T>(work: () => Promise<T>): Promise<T>;
}

// A case that takes longer hangs. Runners have a limit of their own, but do not say which case it was that ran ahead.
const LONGEST_CASE = 45_000;
// Fake time runs away while a case waits for something real.
const LONGEST_FAKE_CASE = 600_000;

export function testTime(clock: FakeClock | undefined): TestTime {
  return clock ? new FakeTime(clock) : new RealTime();
}

class RealTime implements TestTime {
  readonly clock = systemClock;
  readonly slack = 300;

  // Unlike a timer of the clock this one keeps the process alive: runners without one of their own would exit. Node's
  // timers count in whole ms and may fire a fraction early.
  sleep(milliseconds: number): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, milliseconds > 0 ? Math.ceil(milliseconds) + 1 : 0));
  }

  watch(): StarvationWatch {
    return watchStarvation();
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
  readonly slack = 50;

  constructor(readonly clock: FakeClock) {}

  sleep(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      this.clock.setTimer(resolve, milliseconds);
    });
  }

  /** Its time goes on when the case does. */
  watch(): StarvationWatch {
    return { longest: () => 0, end: () => undefined };
  }

  async drive<T>(work: () => Promise<T>): Promise<T> {
    const settled = new AbortController();
    const result = work().finally(() => {
      settled.abort();
    });
    result.catch(() => undefined);
    const limit = this.clock.now() + LONGEST_FAKE_CASE;
    while (!settled.signal.aborted) {
      if (this.clock.now() >= limit) throw endless();
      await this.clock.advance(1);
    }
    return result;
  }
}

function endless(): Error {
  return new Error('The case did not end: something was never answered.');
}
