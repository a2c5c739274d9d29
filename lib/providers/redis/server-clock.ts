/**
 * When something happened at the server, on this process's monotonic clock: at the earliest.
 *
 * A message about a grant does not say how long it was under way. But a command that was answered with the server's time was
 * executed after it was sent, so a grant that the server dates `d` later happened at least `d` after that sending. No two
 * machines' clocks are compared: both server times come from one server.
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

  /** The earliest moment for the server time `serverTime` (µs); nothing when no recent observation tells. */
  earliest(serverTime: number, now: number): number | undefined {
    // Over a longer time the two clocks drift apart, and the server's is more likely to have been stepped.
    if (!this.#known || now - this.#sentAt > RECENT) return undefined;
    return Math.min(now, this.#sentAt + (serverTime - this.#serverTime) / 1_000);
  }
}

const RECENT = 10_000;
