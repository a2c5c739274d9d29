/** A timer of a {@link Clock}; opaque. */
export type Timer = object;

/**
 * The only source of time. Injected, so that every rule about time can be tested without waiting.
 *
 * Deadlines are computed on `now()` alone: the wall clock may be stepped by an operator or by NTP at any moment.
 */
export interface Clock {
  /** Monotonic milliseconds from an arbitrary start. Stops while the machine is suspended. */
  now(): number;
  /** Milliseconds since boot. Goes on while the machine is suspended, and ignores steps of the wall clock. */
  uptime(): number;
  /** Milliseconds since the Unix epoch. For display and as the floor of fencing tokens, never for deadlines. */
  wallTime(): number;
  /**
   * Calls back once after `delay` ms. A clock may call back earlier if that is more than 2^31 - 1 ms, 24.8 days, and `Infinity` ms among that.
   *
   * @param keepAlive whether the process must not end before. For what a caller awaits or holds, and for a connection that is made again, as
   * an open one keeps the process alive. Not for what runs in the background.
   */
  setTimer(callback: () => void, delay: number, keepAlive?: boolean): Timer;
  clearTimer(timer: Timer): void;
}
