const TURN_MS = 50;

/**
 * Limits how long a process may keep a key of a polled backend. Other processes poll at random times, so a process
 * that requests the key again with each release would starve them as long as it has callers. When its turn ends, the
 * process pauses as it does after an unanswered request.
 */
export class PollingTurn {
  /** @param startedAt when the process first released the key with more callers waiting */
  constructor(private readonly startedAt: number) {}

  isOver(now: number): boolean {
    return now - this.startedAt >= TURN_MS;
  }
}
