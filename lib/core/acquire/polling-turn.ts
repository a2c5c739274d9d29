const TURN_MS = 50;

/**
 * Limits how long a process may keep a key of a polled backend. Other processes poll at random times, so a process
 * that requests the key again with each release would starve them as long as it has callers. When its turn ends, the
 * process pauses as it does after an unanswered request.
 */
export class PollingTurn {
  /** When the process first released the key with more callers waiting. */
  #since: number | undefined;

  /** Starts the turn if it hasn't started. */
  isOver(now: number): boolean {
    this.#since ??= now;
    return now - this.#since >= TURN_MS;
  }

  end(): void {
    this.#since = undefined;
  }
}
