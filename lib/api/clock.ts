/** An opaque {@link Clock} timer. */
export type Timer = object;

/**
 * The only source of time. It's injected so that tests of timing rules don't have to wait.
 *
 * Deadlines use only `now()` because an operator or NTP may step the wall clock at any time.
 */
export interface Clock {
  /** Monotonic milliseconds since an arbitrary start. Pauses while the machine is suspended. */
  now(): number;
  /** Milliseconds since boot. Keeps running while the machine is suspended, and ignores wall-clock steps. */
  uptime(): number;
  /**
   * Milliseconds since the Unix epoch. Used for display and as the lower bound for fencing tokens, never for deadlines.
   */
  wallTime(): number;
  /**
   * Calls `callback` once after `delay` ms. If `delay` is over 2^31 - 1 ms (24.8 days) or `Infinity`, a clock may call
   * it earlier.
   *
   * @param keepAlive whether the timer keeps the process alive. Set this for anything a caller awaits or holds, and for
   * reconnects (an open connection would also keep the process alive), but not for background work. Default: false.
   */
  setTimer(callback: () => void, delay: number, keepAlive?: boolean): Timer;
  clearTimer(timer: Timer): void;
}
