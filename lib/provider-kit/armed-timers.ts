import type { Clock, Timer } from '../api/clock.js';

/** Wraps another clock and tracks which of its timers are armed, to find forgotten ones. */
export class ArmedTimers implements Clock {
  readonly #armed = new Set<Timer>();

  constructor(private readonly clock: Clock) {}

  get count(): number {
    return this.#armed.size;
  }

  now(): number {
    return this.clock.now();
  }

  uptime(): number {
    return this.clock.uptime();
  }

  wallTime(): number {
    return this.clock.wallTime();
  }

  setTimer(callback: () => void, delay: number): Timer {
    const timer = this.clock.setTimer(() => {
      this.#armed.delete(timer);
      callback();
    }, delay);
    this.#armed.add(timer);
    return timer;
  }

  clearTimer(timer: Timer): void {
    this.#armed.delete(timer);
    this.clock.clearTimer(timer);
  }
}
