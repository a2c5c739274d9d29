/**
 * What is known of the votes of one attempt. A node is named by its seat, and a vote by its round, which the node keeps with it: a vote
 * that was lost and given again has another round.
 *
 * A renewal succeeds only by votes that count. Votes of the grant count. A vote that a node gave later counts after the first
 * renewal that was sent when the vote was acknowledged, and that succeeded without it: a majority and this vote have then stood at the
 * same time. If it counted earlier, a lock that somebody else held in between could come back to life (`test/redlock/vote-model.ts`
 * finds the way).
 */
export class Votes {
  /** Its release was sent: no vote may be asked for behind it. */
  isReleased = false;
  readonly #possible = new Set<number>();
  readonly #acknowledged = new Map<number, string>();
  readonly #counted = new Map<number, string>();

  /** A question for a vote was sent to the node. */
  asked(seat: number): void {
    this.#possible.add(seat);
  }

  /** The node has answered that somebody else has its vote. */
  refused(seat: number): void {
    this.#possible.delete(seat);
  }

  /** Whether a vote may stand at some node. */
  get mayStand(): boolean {
    return this.#possible.size > 0;
  }

  mayStandAt(seat: number): boolean {
    return this.#possible.has(seat);
  }

  /** The node has answered that the vote of this round stands. */
  acknowledge(seat: number, round: string): void {
    if (round > (this.#acknowledged.get(seat) ?? '')) this.#acknowledged.set(seat, round);
  }

  /** Those that are acknowledged by now. */
  acknowledged(): ReadonlyMap<number, string> {
    return new Map(this.#acknowledged);
  }

  counts(seat: number, round: unknown): boolean {
    return this.#counted.get(seat) === round;
  }

  /** From now on this vote counts. */
  count(seat: number, round: string): void {
    if (round > (this.#counted.get(seat) ?? '')) this.#counted.set(seat, round);
  }
}
