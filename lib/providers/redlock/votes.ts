/**
 * Records a request's votes. Nodes are identified by index and votes by round. A node stores the round with its vote,
 * so a vote lost and restored has a different round.
 *
 * Only votes that count can renew a lock. The grant's votes count. A later vote counts once a renewal or recount sent
 * after its acknowledgment has succeeded without it, which proves that the vote coexisted with a majority. If it
 * counted earlier, a hold could come back to life after another caller had held the lock
 * (`test/redlock/lost-votes.spec.ts` finds the sequence).
 *
 * Every request has one of these, so they use lists indexed by node, which are smaller than a `Map`.
 */
export class Votes {
  /** Whether the release was sent. No vote may be requested after that. */
  isReleased = false;
  readonly #sent: (string | undefined)[] = [];
  readonly #acknowledged: string[] = [];
  readonly #counted: string[] = [];

  /** Records a vote request to the node in this round. */
  requested(node: number, round: string): void {
    this.#sent[node] = round;
  }

  /**
   * Records the node's reply in this round that another holder has its vote. A later round already sent to the node may
   * still get a vote.
   */
  refused(node: number, round: string): void {
    if (this.#sent[node] === round) this.#sent[node] = undefined;
  }

  /** Whether a node may have a vote for this request. */
  get isSent(): boolean {
    return this.#sent.some((round) => round !== undefined);
  }

  isSentTo(node: number): boolean {
    return this.#sent[node] !== undefined;
  }

  /** Records the vote that the node reported in this round. Returns whether it's new. */
  acknowledge(node: number, round: string): boolean {
    return raise(this.#acknowledged, node, round);
  }

  /** A copy of the acknowledged rounds, by node. */
  acknowledged(): readonly (string | undefined)[] {
    return this.#acknowledged.slice();
  }

  counts(node: number, round: string): boolean {
    return this.#counted[node] === round;
  }

  /** From now on, all acknowledged votes from this round count. */
  countRound(round: string): void {
    for (let node = 0; node < this.#acknowledged.length; node += 1) {
      if (this.#acknowledged[node] === round) this.#counted[node] = round;
    }
  }

  /** From now on, this vote counts. */
  count(node: number, round: string): void {
    raise(this.#counted, node, round);
  }
}

// Replies may be read out of order. Rounds have a fixed width, so they can be compared as text.
function raise(rounds: string[], node: number, round: string): boolean {
  if (round <= (rounds[node] ?? '')) return false;
  rounds[node] = round;
  return true;
}
