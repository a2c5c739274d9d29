import type { RenewOutcome } from '../../api/lock-provider.js';
import { validUntil, wholeMs } from '../../core/toolkit/validity.js';
import { Code, NO_MS, tokenDigits } from './lock-script.js';
import { type Agreement, Poll } from './poll.js';
import type { RedlockRequest } from './redlock-request.js';
import type { RedlockGrant } from './round.js';

/**
 * Checks whether a majority of the nodes still has votes that count. If so, all votes acknowledged before this check
 * was sent count, too.
 *
 * A vote acknowledged after the grant triggers a recount immediately. If the vote had to wait up to a third of the
 * lease for the next renewal, a node that restarted empty before then would end the hold, even with a majority still
 * voting for it.
 */
class Recount extends Poll<Agreement> {
  readonly #acknowledgedBefore: readonly (string | undefined)[];
  /** The vote rounds, indexed by node. */
  readonly #standing: string[] = [];

  /** @param ms the votes' new duration; {@link NO_MS} doesn't extend them */
  constructor(
    protected readonly own: RedlockRequest,
    lease: number,
    ms = NO_MS,
  ) {
    super(own.nodes, own.lock, [Code.extend, own.request.id, ms], own.votes, lease);
    this.#acknowledgedBefore = own.votes.acknowledged();
  }

  /**
   * A vote that doesn't count yet isn't a refusal until all nodes have replied, because an earlier recount may still
   * make it count.
   */
  decide(): Agreement | undefined {
    const { nodes, votes } = this.own;
    const counting = this.#standing.filter((round, node) => votes.counts(node, round)).length;
    if (counting >= nodes.majority) return 'agreed';
    if (this.isRefused || this.yes + this.no === nodes.count) return 'refused';
    return this.isUnavailable || this.isComplete ? 'unknown' : undefined;
  }

  override settle(outcome: Agreement): void {
    if (this.isOpen && outcome === 'agreed') {
      this.#acknowledgedBefore.forEach((round, node) => {
        if (round !== undefined) this.own.votes.count(node, round);
      });
    }
    super.settle(outcome);
  }

  /** Whether the node has a vote, even if the vote doesn't count. */
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
    if (this.own.votes.acknowledge(node, round)) recount(this.own, this.lease);
  }
}

/** Starts a recount, so that votes acknowledged after the grant count. */
export function recount(own: RedlockRequest, lease: number): void {
  if (!own.votes.isReleased) void new Recount(own, lease).start();
}

/**
 * Renews a lock: a majority of the nodes must extend votes that count. The renewal is decided once a majority has
 * replied for this lock. Nodes that have lost their vote are asked to restore it only after the renewal succeeds.
 */
export class RedlockRenewal extends Recount {
  readonly #ms: string;
  /** The nodes that have lost the vote, or never cast one. */
  readonly #missing: number[] = [];
  #hasSucceeded = false;

  constructor(
    own: RedlockRequest,
    private readonly grant: RedlockGrant,
    lease: number,
  ) {
    const ms = wholeMs(Math.max(lease, grant.keptUntil - own.nodes.clock.now()));
    super(own, lease, ms);
    this.#ms = ms;
  }

  async run(): Promise<RenewOutcome> {
    const outcome = await this.start();
    if (outcome !== 'agreed') return outcome === 'refused' ? 'lost' : 'unknown';
    this.#hasSucceeded = true;
    for (const node of this.#missing) this.#restoreVote(node);
    return { validUntil: validUntil(this.sentAt, this.lease) };
  }

  protected override isYes(reply: unknown, node: number): boolean {
    if (typeof reply !== 'string') this.#missing.push(node);
    return super.isYes(reply, node);
  }

  protected override onLate(reply: unknown, node: number): void {
    super.onLate(reply, node);
    if (typeof reply === 'string') return;
    if (this.#hasSucceeded) this.#restoreVote(node);
    else this.#missing.push(node);
  }

  #restoreVote(node: number): void {
    const { nodes, lock, votes, request } = this.own;
    const { fencingToken, followers = 0 } = this.grant;
    const round = nodes.nextRound();
    const onReply = (reply: unknown) => {
      if (reply === 1) this.acknowledge(node, round);
    };
    const vote = request.id + tokenDigits(Number(fencingToken) + followers) + round;
    nodes.all[node]?.send({ lock, args: [Code.restoreVote, vote, this.#ms], votes, onReply });
  }
}
