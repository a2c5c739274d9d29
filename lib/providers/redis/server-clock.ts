/**
 * The earliest time at which something happened at the server, on this process's monotonic clock.
 *
 * A message about a grant does not show how long it was in flight. But a command that was answered with the server's time was
 * executed after it was sent, so a grant that the server dates `d` later happened at least `d` after that sending, less the 1 % by
 * which the two clocks may run at different speeds. Clocks of two machines are never compared: both server times come from one server.
 */
export class ServerClock {
  #sentAt = 0;
  #serverTime = 0;
  #known = false;

  /** A command sent at `sentAt` was answered with the server's time, in µs. */
  observe(sentAt: number, serverTime: number): void {
    this.#sentAt = sentAt;
    this.#serverTime = serverTime;
    this.#known = true;
  }

  /** The connection was lost: the next server may be another one. */
  forget(): void {
    this.#known = false;
  }

  /** The earliest time for the server time `serverTime` (µs); `undefined` without a recent observation. */
  earliest(serverTime: number, now: number): number | undefined {
    // Over a longer time the two clocks drift apart, and the server's is more likely to have been stepped.
    if (!this.#known || now - this.#sentAt > RECENT) return undefined;
    const later = (serverTime - this.#serverTime) / 1_000;
    return Math.min(now, this.#sentAt + later - Math.abs(later) * DRIFT);
  }
}

const RECENT = 10_000;
/** As in the margin of a lease: a lease that counted from a time that is too late by more would be believed after its end. */
const DRIFT = 0.01;
