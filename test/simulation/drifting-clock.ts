import type { Clock, Timer } from '../../lib/api/clock.js';
import type { FakeClock } from '../../lib/testing/fake-clock.js';

/** The clock of a simulated process: slightly faster or slower than true time, with a different start. */
export class DriftingClock implements Clock {
  constructor(
    private readonly truth: FakeClock,
    private readonly rate: number,
    private readonly start: number,
  ) {}

  now(): number {
    return this.start + this.truth.now() * this.rate;
  }

  uptime(): number {
    return this.now();
  }

  // Far from the wall clocks of the other processes, which must not matter.
  wallTime(): number {
    return this.truth.wallTime() + this.start * 1_000;
  }

  setTimer(callback: () => void, delay: number): Timer {
    return this.truth.setTimer(callback, delay / this.rate);
  }

  clearTimer(timer: Timer): void {
    this.truth.clearTimer(timer);
  }
}

export function sleep(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.setTimer(resolve, ms));
}
