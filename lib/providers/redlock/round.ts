import type { LockError } from '../../api/errors.js';
import type { Grant } from '../../api/lock-provider.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { Code, NO_MS, NO_TOKEN, readVote, tokenDigits, type Vote, wholeMs } from './lock-script.js';
import type { RedlockCommand } from './node.js';
import { AgreementPoll, Poll } from './poll.js';
import type { RedlockRequest } from './redlock-request.js';
import { recount } from './renewal.js';

type RoundOutcome = 'elected' | 'busy' | 'forgetful' | 'unavailable';

/** A grant, and until when its key must stay locked whatever happens to the holder. */
export interface RedlockGrant extends Grant {
  readonly keptUntil: number;
}

/**
 * One round of a request: all nodes are asked for their votes at the same time, and a majority of them is a lock.
 *
 * Exclusion: two majorities of votes that exist at the same time share a node, and a node votes for one holder.
 *
 * Tokens grow: the token of a grant was written, before the lock was granted, into votes of a majority that existed at that time, and into
 * the counters of those nodes. A later holder's majority shares a node with them. That node's new vote came after its old one was over, so
 * after the write, and names a larger token; the new token is the largest that was named. This needs a majority that
 * remembers. A node without a counter has lost it, and only adds its clock. When no majority has a counter, the
 * namespace is new (or a majority has lost its data, and the clocks are all that is left).
 *
 * Callers of a process that hold the lock one after the other have a block of tokens. RedlockNodes compare its first one with what they know, and
 * all that is said of a token's writing holds for its last one. So the first is larger than all earlier blocks, and a later
 * first is larger than the last. Of a hold that is found again only the last token is known, so it has no followers.
 *
 * A node that has lost its counter, which all keys share, remembers again only by a write that comes together with its own vote: a majority
 * that remembers has named that token after the loss, so after all that was granted before. Any other write may have been in
 * flight since before the loss, older than tokens that were granted meanwhile; enough such nodes would make up a smaller token. The
 * counter is not enough for a lock that was just being granted while the node lost its data: `delayedRestart` outlasts those.
 */
export class Round extends Poll<RoundOutcome> {
  readonly #number: string;
  readonly #kept: number;
  /** How many callers it could serve one after the other. */
  readonly #callers: number;
  /** The vote of a node that has voted as it was asked to. */
  readonly #named: Vote;
  readonly #received: Vote[] = [];
  /** How many of the votes come from nodes without a counter. */
  #forgetful = 0;
  /** The last token of the block, on which a majority has agreed. */
  #token: number | undefined;
  #isGranted = false;

  constructor(private readonly own: RedlockRequest) {
    const { nodes, lock, request, votes } = own;
    const { id, lease, minHold } = request;
    const callers = minHold === 0 ? request.callers : 1;
    const kept = Math.max(lease, minHold);
    const number = nodes.nextRound();
    const first = nodes.tokens.next(nodes.clock.now(), callers);
    const last = first === undefined ? 0 : first + callers - 1;
    const vote = id + tokenDigits(last) + number;
    const block = first === undefined || callers === 1 ? vote : vote + tokenDigits(first);
    super(nodes, lock, [Code.vote, block, wholeMs(kept)], votes, lease);
    this.#callers = callers;
    this.#kept = kept;
    this.#number = number;
    this.#named = { written: last, least: last, remembers: true, left: kept };
  }

  /** @throws LockUnavailableError when a majority does not answer. */
  async run(): Promise<RedlockGrant | 'busy'> {
    const outcome = await this.start();
    if (outcome === 'busy') {
      this.#cleanUp();
      return 'busy';
    }
    if (outcome === 'unavailable') throw this.#failed(this.cause);
    if (outcome === 'forgetful') {
      throw this.#failed(
        new Error('Some nodes have lost their data, and those that answer and remember are no majority.'),
      );
    }
    const { nodes } = this;
    const followers = this.#isFound ? 0 : this.#callers - 1;
    const carried = this.#carried();
    const token = carried ?? this.largest + followers;
    this.#token = token;
    if (carried === undefined) await this.#writeBack(token);
    else if (this.#forgetful > 0 || nodes.tokens.isMissingAtNode) nodes.send(this.#write(token));
    nodes.tokens.granted();
    this.#isGranted = true;
    this.own.votes.countRound(this.#number);
    return this.#grant(token - followers, followers);
  }

  /** The caller has left: answers `busy` now. Votes that the round still gets are cleaned up. */
  end(): void {
    this.settle('busy');
  }

  decide(): RoundOutcome | undefined {
    if (this.isAgreed) {
      const { majority } = this.nodes;
      if (this.yes - this.#forgetful >= majority || this.#forgetful >= majority) return 'elected';
    } else if (this.isRefused) return 'busy';
    if (this.isUnavailable) return 'unavailable';
    if (!this.isComplete) return undefined;
    if (this.isAgreed) return 'forgetful';
    return this.isAnswered ? 'busy' : 'unavailable';
  }

  /** The largest token that a node has named. */
  get largest(): number {
    return Math.max(...this.#received.map(({ written, least }) => Math.max(written, least)));
  }

  protected override isYes(reply: unknown, node: number): boolean {
    const vote = this.#read(reply, node);
    if (!vote) return false;
    this.#received.push(vote);
    if (!vote.remembers) this.#forgetful += 1;
    return true;
  }

  /**
   * A vote that comes after the grant counts with the others if it carries the token of the grant: the node knew no larger token, so nobody
   * was granted by its vote in between. Any other vote is recounted.
   */
  protected override onLate(reply: unknown, node: number): void {
    const vote = this.#read(reply, node);
    if (!vote) return;
    if (!vote.remembers) {
      this.nodes.tokens.missedAtNode();
      if (this.#token !== undefined) this.nodes.send(this.#write(this.#token));
    }
    if (!this.#isGranted) return;
    if (vote.written === this.#token) this.own.votes.count(node, this.#number);
    else recount(this.own, this.lease);
  }

  /** Whether a vote carries a token of an earlier round, whose outcome was unknown. */
  get #isFound(): boolean {
    return this.#received.some((vote) => vote !== this.#named && vote.written > 0);
  }

  /** The token that a majority of the votes carries already. */
  #carried(): number | undefined {
    for (const { written } of this.#received) {
      let count = 0;
      for (const vote of this.#received) if (vote.written === written) count += 1;
      if (written > 0 && count >= this.nodes.majority) return written;
    }
    return undefined;
  }

  /** Makes the token known to a majority: the last one of a block that begins with the largest that was named. */
  async #writeBack(token: number): Promise<void> {
    const { nodes } = this;
    const { lock, args } = this.#write(token);
    const write = new AgreementPoll(nodes, lock, args, undefined, this.lease);
    if ((await write.start()) !== 'agreed') throw this.#failed(write.cause);
    nodes.tokens.observe(token, nodes.clock.now());
  }

  #grant(token: number, followers: number): RedlockGrant {
    const { lease, minHold } = this.own.request;
    const { sentAt } = this;
    const deadline = validUntil(sentAt, Math.min(lease, this.#lasting()));
    if (this.nodes.clock.now() >= deadline) {
      throw this.#failed(new Error('The votes came when the lease was over.'));
    }
    return {
      lease,
      fencingToken: BigInt(token),
      followers,
      validUntil: deadline,
      keptUntil: minHold > 0 ? sentAt + minHold : 0,
    };
  }

  /** How long a majority of the votes lasts, counted from the sending, in ms. */
  #lasting(): number {
    const left = this.#received.map((vote) => Math.min(vote.left, this.#kept)).sort((a, b) => b - a);
    return left[this.nodes.majority - 1] ?? 0;
  }

  /** Ends the round's votes. On each connection this follows the round's question, so it also ends votes that are still in flight. */
  #cleanUp(): void {
    const { nodes, lock, request, votes } = this.own;
    if (!votes.isSent) return;
    nodes.send({ lock, args: [Code.cleanUp, request.id + NO_TOKEN + this.#number, NO_MS], votes });
  }

  #write(token: number): RedlockCommand {
    const { lock, request } = this.own;
    return { lock, args: [Code.writeToken, request.id + tokenDigits(token) + this.#number, NO_MS] };
  }

  #failed(cause: unknown): LockError {
    this.#cleanUp();
    const { request, votes } = this.own;
    // Where no vote may exist, nothing is left of the request.
    return this.nodes.unavailable(request.key, { cause, refusals: this.refusals }, votes.isSent);
  }

  #read(reply: unknown, node: number): Vote | undefined {
    const vote = reply === 1 ? this.#named : typeof reply === 'string' ? readVote(reply) : undefined;
    if (vote) this.own.votes.acknowledge(node, this.#number);
    else this.own.votes.refused(node, this.#number);
    return vote;
  }
}
