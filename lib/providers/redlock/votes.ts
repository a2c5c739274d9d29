/**
 * Records the votes of a request. A node is identified by its index, and a vote by its round, which the node stores with it: a vote that was lost
 * and restored has another round.
 *
 * Only votes that count can renew a lock. The votes of the grant count. A later vote counts after a renewal or recount that was sent after the
 * vote was acknowledged and that succeeded without it: then a majority and this vote existed at the same time. If it counted earlier, a hold
 * could come back to life after another caller had held the lock (`test/redlock/vote-model.ts` finds the sequence).
 *
 * The lists are indexed by node. Each request has one of these objects, and a list is smaller than a `Map`.
 */
export class Votes {
  /** Whether the release was sent. No vote may be requested after it. */
  isReleased = false;
  readonly #sent: (string | undefined)[] = [];
  readonly #acknowledged: string[] = [];
  readonly #counted: string[] = [];

  /** A vote in this round is requested from the node. */
  requested(node: number, round: string): void {
    this.#sent[node] = round;
  }

  /**
   * The node replied in this round that another holder has its vote. If a later round was already sent to it, that one may still get a vote.
   */
  refused(node: number, round: string): void {
    if (this.#sent[node] === round) this.#sent[node] = undefined;
  }

  /** Whether a node may have a vote of this request. */
  get isSent(): boolean {
    return this.#sent.some((round) => round !== undefined);
  }

  isSentTo(node: number): boolean {
    return this.#sent[node] !== undefined;
  }

  /** The node reported its vote of this round. Returns whether that is new. */
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

  /** From now on, all votes of this round that are acknowledged count. */
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
