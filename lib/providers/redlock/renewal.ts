import type { RenewOutcome } from '../../api/lock-provider.js';
import { validUntil } from '../../core/toolkit/validity.js';
import type { Attempt } from './attempt.js';
import { Code, tokenDigits, wholeMs } from './lock-script.js';
import type { Nodes } from './nodes.js';
import { AgreementPoll } from './poll.js';
import type { RedlockGrant } from './round.js';

/**
 * Renews one lock: a majority of the nodes has to extend votes that count. Decided as soon as a majority has answered for this lock,
 * whatever other nodes and other locks do. Only then, and only after a success, nodes that have lost the vote are asked for it again.
 */
export class Renewal extends AgreementPoll {
  readonly #ms: string;
  /** The nodes that have lost the vote, or never gave it. */
  readonly #missing: number[] = [];
  #hasSucceeded = false;

  constructor(
    nodes: Nodes,
    private readonly attempt: Attempt,
    private readonly grant: RedlockGrant,
    lease: number,
  ) {
    const ms = wholeMs(Math.max(lease, grant.keptUntil - nodes.clock.now()));
    super(nodes, attempt.lock, [Code.extend + ms, attempt.request.id], attempt.votes, lease);
    this.#ms = ms;
  }

  async run(): Promise<RenewOutcome> {
    const { votes } = this.attempt;
    const acknowledgedBefore = votes.acknowledged();
    const outcome = await this.ask();
    if (outcome !== 'agreed') return outcome === 'refused' ? 'lost' : 'unknown';
    this.#hasSucceeded = true;
    acknowledgedBefore.forEach((round, node) => {
      if (round !== undefined) votes.count(node, round);
    });
    for (const node of this.#missing) this.#askAgain(node);
    return { validUntil: validUntil(this.sentAt, this.lease) };
  }

  protected override isYes(reply: unknown, node: number): boolean {
    if (typeof reply !== 'string') {
      this.#missing.push(node);
      return false;
    }
    const { votes } = this.attempt;
    votes.acknowledge(node, reply);
    return votes.counts(node, reply);
  }

  protected override onLate(reply: unknown, node: number): void {
    if (typeof reply === 'string') this.attempt.votes.acknowledge(node, reply);
    else if (this.#hasSucceeded) this.#askAgain(node);
    else this.#missing.push(node);
  }

  #askAgain(node: number): void {
    const { nodes, lock } = this;
    const { votes, request } = this.attempt;
    // Sent behind the release, the vote would outlive it.
    if (votes.isReleased) return;
    const { fencingToken, followers = 0 } = this.grant;
    const round = nodes.nextRound();
    const onReply = (reply: unknown) => {
      if (reply === 1) votes.acknowledge(node, round);
    };
    const vote = request.id + tokenDigits(Number(fencingToken) + followers) + round;
    nodes.send({ lock, args: [Code.voteAgain + this.#ms, vote], votes, only: node, onReply });
  }
}
