/**
 * Estimates the earliest time, on this process's monotonic clock, at which something happened at the server.
 *
 * A message about a grant doesn't say how long it was in flight. But a command whose reply contains the server's time
 * ran after it was sent. So if a grant's server time is `d` later, it happened at least `d` after that command was
 * sent, minus 1 % for different clock speeds. Two machines' clocks are never compared: both times come from the same
 * server.
 */
export class ServerClock {
  /** When the command of the observation was sent; `-Infinity` without one. */
  #sentAt = -Infinity;
  #serverTime = 0;

  /** Records the server's time (µs) in the reply to a command sent at `sentAt`. */
  observe(sentAt: number, serverTime: number): void {
    this.#sentAt = sentAt;
    this.#serverTime = serverTime;
  }

  /** Drops the observation because the next connection may be to another server. */
  forget(): void {
    this.#sentAt = -Infinity;
  }

  /**
   * The earliest local time that may correspond to `serverTime` (µs); `undefined` if there is no recent observation.
   */
  earliest(serverTime: number, now: number): number | undefined {
    // Over longer periods, the clocks drift apart, and the server's clock is more likely to have been stepped.
    if (now - this.#sentAt > RECENT) return undefined;
    const later = (serverTime - this.#serverTime) / 1_000;
    return Math.min(now, this.#sentAt + later - Math.abs(later) * DRIFT);
  }
}

const RECENT = 10_000;
/**
 * The same fraction as a lease's margin. If the estimate were too late by more than that, a lease would still be
 * trusted after it ended.
 */
const DRIFT = 0.01;
