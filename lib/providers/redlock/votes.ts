/**
 * Records a request's votes. A node is identified by its index, and a vote by its round, which the node stores with it,
 * so a lost and restored vote has a different round.
 *
 * Only votes that count can renew a lock. The grant's votes count. A later vote counts once a renewal or recount sent
 * after its acknowledgment has succeeded without it: then a majority and this vote existed at the same time. If it
 * counted earlier, a hold
 * could come back to life after another caller had held the lock (`test/redlock/vote-model.ts` finds the sequence).
 *
 * Each request has such an object, so it uses lists indexed by node: a list is smaller than a `Map`.
 */
export class Votes {
  /** Whether the release was sent. No vote may be requested after that. */
  isReleased = false;
  readonly #sent: (string | undefined)[] = [];
  readonly #acknowledged: string[] = [];
  readonly #counted: string[] = [];

  /** The node is asked to vote in this round. */
  requested(node: number, round: string): void {
    this.#sent[node] = round;
  }

  /**
   * The node replied in this round that another holder has its vote. If a later round has already been sent to it, that one may still get a vote.
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

  /** The node reported its vote in this round. Returns whether this is new. */
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
