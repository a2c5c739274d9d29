import type { RenewOutcome } from '../../api/lock-provider.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { Code, NO_MS, tokenDigits, wholeMs } from './lock-script.js';
import { type Agreement, Poll } from './poll.js';
import type { RedlockRequest } from './redlock-request.js';
import type { RedlockGrant } from './round.js';

/**
 * Asks whether a majority of the nodes still has votes that count. If so, all votes that were acknowledged when it was sent count from
 * then on.
 *
 * A vote that is acknowledged after the grant is recounted immediately. If it waited for the next renewal, up to a third of the lease, the
 * first node that restarts empty meanwhile would end the hold, although a majority still has votes for it.
 */
class Recount extends Poll<Agreement> {
  readonly #acknowledgedBefore: readonly (string | undefined)[];
  /** The rounds of the votes that the nodes have, by node. */
  readonly #standing: string[] = [];

  /** @param ms to how many ms it extends the votes. With {@link NO_MS} it does not. */
  constructor(
    protected readonly own: RedlockRequest,
    lease: number,
    ms = NO_MS,
  ) {
    super(own.nodes, own.lock, [Code.extend, own.request.id, ms], own.votes, lease);
    this.#acknowledgedBefore = own.votes.acknowledged();
  }

  /** A vote that does not count is no refusal until all have answered, because an earlier recount may still make it count. */
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
    if (this.own.votes.acknowledge(node, round)) recount(this.own, this.lease);
  }
}

/** Makes a vote count that was acknowledged after the grant. */
export function recount(own: RedlockRequest, lease: number): void {
  if (!own.votes.isReleased) void new Recount(own, lease).start();
}

/**
 * Renews one lock: a majority of the nodes has to extend votes that count. Decided as soon as a majority has answered for this lock,
 * whatever other nodes and other locks do. Only then, and only after a success, nodes that have lost the vote are asked for it again.
 */
export class RedlockRenewal extends Recount {
  readonly #ms: string;
  /** The nodes that have lost the vote, or never gave it. */
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
    // Sent behind the release, the vote would outlive it.
    if (votes.isReleased) return;
    const { fencingToken, followers = 0 } = this.grant;
    const round = nodes.nextRound();
    const onReply = (reply: unknown) => {
      if (reply === 1) this.acknowledge(node, round);
    };
    const vote = request.id + tokenDigits(Number(fencingToken) + followers) + round;
    nodes.all[node]?.send({ lock, args: [Code.restoreVote, vote, this.#ms], votes, onReply });
  }
}
