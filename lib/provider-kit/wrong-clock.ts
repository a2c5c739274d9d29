import type { Clock } from '../api/clock.js';

/** A machine's clock whose wall time is off by `error` ms. */
export class WrongClock implements Clock {
  readonly now: Clock['now'];
  readonly uptime: Clock['uptime'];
  readonly setTimer: Clock['setTimer'];
  readonly clearTimer: Clock['clearTimer'];

  constructor(
    private readonly clock: Clock,
    private readonly error: number,
  ) {
    this.now = () => clock.now();
    this.uptime = () => clock.uptime();
    this.setTimer = (...timer) => clock.setTimer(...timer);
    this.clearTimer = (timer) => {
      clock.clearTimer(timer);
    };
  }

  wallTime(): number {
    return this.clock.wallTime() + this.error;
  }

  /**
   * Runs `work` while `Date.now()` is wrong as well, for a backend that doesn't use this clock. Nothing else may run at
   * the same time.
   */
  async during<T>(work: () => Promise<T>): Promise<T> {
    const { now } = Date;
    Date.now = () => now() + this.error;
    try {
      return await work();
    } finally {
      Date.now = now;
    }
  }
}
