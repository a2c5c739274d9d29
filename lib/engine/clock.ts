import { uptime } from 'node:os';

/** A timer of a {@link Clock}; opaque. */
export type Timer = object;

/**
 * The only source of time. Injected, so that every rule about time can be tested without waiting.
 *
 * Deadlines are computed on `now()` alone: the wall clock may be stepped by an operator or by NTP at any moment.
 */
export interface Clock {
  /** Monotonic milliseconds from an arbitrary start. Stands still while the machine is suspended. */
  now(): number;
  /** Milliseconds since boot. Goes on while the machine is suspended, and ignores steps of the wall clock. */
  uptime(): number;
  /** Milliseconds since the Unix epoch. For display and as the floor of fencing tokens, never for deadlines. */
  wallTime(): number;
  /**
   * Calls back once after `delay` ms.
   *
   * @param keepAlive whether the process must not end before. Only for what a caller awaits: the timers of a lock that is held
   * must never keep a process alive that has nothing else to do.
   */
  setTimer(callback: () => void, delay: number, keepAlive?: boolean): Timer;
  clearTimer(timer: Timer): void;
}

/** The clocks of this machine. `performance.now()` is CLOCK_MONOTONIC on Linux; `os.uptime()` counts suspended time too. */
export const systemClock: Clock = {
  now: () => performance.now(),
  uptime: () => uptime() * 1000,
  wallTime: () => Date.now(),
  setTimer: (callback, delay, keepAlive = false) => {
    const timer = setTimeout(callback, delay);
    return keepAlive ? timer : timer.unref();
  },
  clearTimer: (timer) => {
    clearTimeout(timer as NodeJS.Timeout);
  },
};
