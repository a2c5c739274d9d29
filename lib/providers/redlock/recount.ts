import { Code } from './lock-script.js';
import type { Nodes } from './nodes.js';
import { type Agreement, Poll } from './poll.js';
import type { Votes } from './votes.js';

/**
 * Asks whether a majority of the nodes still has votes that count. If so, all votes that were acknowledged when it was sent count from
 * then on.
 *
 * A vote that is acknowledged after the grant is recounted immediately. If it waited for the next renewal, up to a third of the lease, the
 * first node that restarts empty meanwhile would end the hold, although a majority still has votes for it.
 */
export class Recount extends Poll<Agreement> {
  readonly #acknowledgedBefore: readonly (string | undefined)[];
  /** The rounds of the votes that the nodes have, by node. */
  readonly #standing: string[] = [];

  constructor(
    nodes: Nodes,
    lock: string,
    private readonly holder: string,
    override readonly votes: Votes,
    lease: number,
    /** To how many ms it extends the votes. With `0` it does not. */
    ms = '0',
  ) {
    super(nodes, lock, [Code.extend + ms, holder], votes, lease);
    this.#acknowledgedBefore = votes.acknowledged();
  }

  /** A vote that does not count is no refusal until all have answered, because an earlier recount may still make it count. */
  decide(): Agreement | undefined {
    const { votes, nodes } = this;
    const counting = this.#standing.filter((round, node) => votes.counts(node, round)).length;
    if (counting >= nodes.majority) return 'agreed';
    if (this.isRefused || this.yes + this.no === nodes.count) return 'refused';
    return this.isUnavailable || this.isComplete ? 'unknown' : undefined;
  }

  override settle(outcome: Agreement): void {
    if (this.isOpen && outcome === 'agreed') {
      this.#acknowledgedBefore.forEach((round, node) => {
        if (round !== undefined) this.votes.count(node, round);
      });
    }
    super.settle(outcome);
  }

  /** Whether the node has a vote, which may not count. */
  protected override isYes(reply: unknown, node: number): boolean {
    if (typeof reply !== 'string') return false;
    this.#standing[node] = reply;
    this.acknowledge(node, reply);
    return true;
  }

  protected override onLate(reply: unknown, node: number): void {
    if (typeof reply === 'string') this.acknowledge(node, reply);
  }

  protected acknowledge(node: number, round: string): void {
    const { nodes, lock, holder, votes, lease } = this;
    if (votes.acknowledge(node, round)) recount(nodes, lock, holder, votes, lease);
  }
}

/** Makes a vote count that was acknowledged after the grant. */
export function recount(nodes: Nodes, lock: string, holder: string, votes: Votes, lease: number): void {
  if (!votes.isReleased) void new Recount(nodes, lock, holder, votes, lease).ask();
}
