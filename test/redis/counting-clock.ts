import { systemClock } from '../../lib/core/toolkit/clock.js';
import type { Clock, Timer } from '../../lib/api/clock.js';

/** The system's clock, which knows what timers are set. */
export class CountingClock implements Clock {
  readonly #timers = new Set<Timer>();

  get armed(): number {
    return this.#timers.size;
  }

  now(): number {
    return systemClock.now();
  }

  uptime(): number {
    return systemClock.uptime();
  }

  wallTime(): number {
    return systemClock.wallTime();
  }

  setTimer(callback: () => void, delay: number, keepsAlive?: boolean): Timer {
    const timer = systemClock.setTimer(
      () => {
        this.#timers.delete(timer);
        callback();
      },
      delay,
      keepsAlive,
    );
    this.#timers.add(timer);
    return timer;
  }

  clearTimer(timer: Timer): void {
    this.#timers.delete(timer);
    systemClock.clearTimer(timer);
  }
}
