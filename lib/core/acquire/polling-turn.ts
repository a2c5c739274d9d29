// In ms.
const TURN = 50;

/**
 * How long a process may keep a key of a polled backend. Other processes poll at random moments, so a process that requests the key with each
 * release would keep them out as long as it has callers. When its turn is over, it pauses as it does after an unanswered request.
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
