import type { RenewOutcome } from '../../api/lock-provider.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { Code, tokenDigits, wholeMs } from './lock-script.js';
import type { Nodes } from './nodes.js';
import { Recount } from './recount.js';
import type { RedlockRequest } from './redlock-request.js';
import type { RedlockGrant } from './round.js';

/**
 * Renews one lock: a majority of the nodes has to extend votes that count. Decided as soon as a majority has answered for this lock,
 * whatever other nodes and other locks do. Only then, and only after a success, nodes that have lost the vote are asked for it again.
 */
export class Renewal extends Recount {
  readonly #ms: string;
  /** The nodes that have lost the vote, or never gave it. */
  readonly #missing: number[] = [];
  #hasSucceeded = false;

  constructor(
    nodes: Nodes,
    private readonly own: RedlockRequest,
    private readonly grant: RedlockGrant,
    lease: number,
  ) {
    const ms = wholeMs(Math.max(lease, grant.keptUntil - nodes.clock.now()));
    super(nodes, own.lock, own.request.id, own.votes, lease, ms);
    this.#ms = ms;
  }

  async run(): Promise<RenewOutcome> {
    const outcome = await this.ask();
    if (outcome !== 'agreed') return outcome === 'refused' ? 'lost' : 'unknown';
    this.#hasSucceeded = true;
    for (const node of this.#missing) this.#askAgain(node);
    return { validUntil: validUntil(this.sentAt, this.lease) };
  }

  protected override isYes(reply: unknown, node: number): boolean {
    if (typeof reply !== 'string') this.#missing.push(node);
    return super.isYes(reply, node);
  }

  protected override onLate(reply: unknown, node: number): void {
    super.onLate(reply, node);
    if (typeof reply === 'string') return;
    if (this.#hasSucceeded) this.#askAgain(node);
    else this.#missing.push(node);
  }

  #askAgain(node: number): void {
    const { nodes, lock } = this;
    const { votes, request } = this.own;
    // Sent behind the release, the vote would outlive it.
    if (votes.isReleased) return;
    const { fencingToken, followers = 0 } = this.grant;
    const round = nodes.nextRound();
    const onReply = (reply: unknown) => {
      if (reply === 1) this.acknowledge(node, round);
    };
    const vote = request.id + tokenDigits(Number(fencingToken) + followers) + round;
    nodes.send({ lock, args: [Code.voteAgain + this.#ms, vote], votes, only: node, onReply });
  }
}
