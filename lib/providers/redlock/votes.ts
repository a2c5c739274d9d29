/**
 * Records the votes of one request. A node is named by its number, and a vote by its round, which the node keeps with it: a vote
 * that was lost and given again has another round.
 *
 * A renewal succeeds only by votes that count. Votes of the grant count. A vote that a node gave later counts after the first
 * renewal or recount that was sent when the vote was acknowledged, and that succeeded without it: a majority and this vote have then
 * existed at the same time. If it counted earlier, a lock that another caller held in between could come back to life
 * (`test/redlock/vote-model.ts` finds the way).
 *
 * The lists are indexed by the node's number: there is one of these objects for each request, and a list is smaller than a Map.
 */
export class Votes {
  /** Its release was sent: no vote may be asked for behind it. */
  isReleased = false;
  readonly #sent: (string | undefined)[] = [];
  readonly #acknowledged: string[] = [];
  readonly #counted: string[] = [];

  /** The node is asked for its vote in this round. */
  requested(node: number, round: string): void {
    this.#sent[node] = round;
  }

  /**
   * The node has answered in this round that another holder has its vote. A slow node may answer when the question of a later round is on its
   * way already, and the node may grant that one.
   */
  refused(node: number, round: string): void {
    if (this.#sent[node] === round) this.#sent[node] = undefined;
  }

  /** Something was sent to a node that may have left a vote there. */
  get isSent(): boolean {
    return this.#sent.some((round) => round !== undefined);
  }

  isSentTo(node: number): boolean {
    return this.#sent[node] !== undefined;
  }

  /** The node has answered that it has the vote of this round. Returns whether it was not known yet. */
  acknowledge(node: number, round: string): boolean {
    return raise(this.#acknowledged, node, round);
  }

  /** The rounds of the votes that are acknowledged by now. */
  acknowledged(): readonly (string | undefined)[] {
    return this.#acknowledged.slice();
  }

  counts(node: number, round: string): boolean {
    return this.#counted[node] === round;
  }

  /** The votes of this round that are acknowledged by now count from now on. */
  countRound(round: string): void {
    for (let node = 0; node < this.#acknowledged.length; node += 1) {
      if (this.#acknowledged[node] === round) this.#counted[node] = round;
    }
  }

  /** This vote counts from now on. */
  count(node: number, round: string): void {
    raise(this.#counted, node, round);
  }
}

// A node's answers may be read after those to a later question. Rounds have a fixed width, so they compare as text.
function raise(rounds: string[], node: number, round: string): boolean {
  if (round <= (rounds[node] ?? '')) return false;
  rounds[node] = round;
  return true;
}
