/**
 * What is known of the votes of one attempt. A node is named by its seat, and a vote by its round, which the node keeps with it: a vote
 * that was lost and given again has another round.
 *
 * A renewal succeeds only by votes that count. Votes of the grant count. A vote that a node gave later counts after the first
 * renewal that was sent when the vote was acknowledged, and that succeeded without it: a majority and this vote have then stood at the
 * same time. If it counted earlier, a lock that somebody else held in between could come back to life (`test/redlock/vote-model.ts`
 * finds the way).
 *
 * The lists are indexed by seat: there is one of these for each attempt, and a list is smaller than a Map.
 */
export class Votes {
  /** Its release was sent: no vote may be asked for behind it. */
  isReleased = false;
  readonly #possible: boolean[] = [];
  readonly #acknowledged: string[] = [];
  readonly #counted: string[] = [];

  /** A question for a vote was sent to the node. */
  asked(seat: number): void {
    this.#possible[seat] = true;
  }

  /** The node has answered that somebody else has its vote. */
  refused(seat: number): void {
    this.#possible[seat] = false;
  }

  /** Whether a vote may stand at some node. */
  get mayStand(): boolean {
    return this.#possible.includes(true);
  }

  mayStandAt(seat: number): boolean {
    return this.#possible[seat] === true;
  }

  /** The node has answered that the vote of this round stands. */
  acknowledge(seat: number, round: string): void {
    raise(this.#acknowledged, seat, round);
  }

  /** The rounds of those that are acknowledged by now. */
  acknowledged(): readonly (string | undefined)[] {
    return this.#acknowledged.slice();
  }

  counts(seat: number, round: string): boolean {
    return this.#counted[seat] === round;
  }

  /** The votes of this round that are acknowledged by now count from now on. */
  countRound(round: string): void {
    for (let seat = 0; seat < this.#acknowledged.length; seat += 1) {
      if (this.#acknowledged[seat] === round) this.#counted[seat] = round;
    }
  }

  /** This vote counts from now on. */
  count(seat: number, round: string): void {
    raise(this.#counted, seat, round);
  }
}

// A node's answers may be read after those to a later question. Rounds have a fixed width, so they compare as text.
function raise(rounds: string[], seat: number, round: string): void {
  if (round > (rounds[seat] ?? '')) rounds[seat] = round;
}
