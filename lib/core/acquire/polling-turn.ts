// In ms.
const TURN = 50;

/**
 * How long a process may keep a key of a backend that is polled. Other processes poll at random moments, so one that requests the key with each
 * release would keep them out for as long as callers come to it. When its turn is over, it pauses as after a request that was not answered.
 */
export class PollingTurn {
  /** When the process first requested the key with a release, on the monotonic clock. */
  #since: number | undefined;

  /** Starts the turn, if it has not started. */
  isOver(now: number): boolean {
    this.#since ??= now;
    return now - this.#since >= TURN;
  }

  end(): void {
    this.#since = undefined;
  }
}
