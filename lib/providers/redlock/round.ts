import type { LockError } from '../../api/errors.js';
import type { Grant } from '../../api/lock-provider.js';
import { validUntil, wholeMs } from '../../core/toolkit/validity.js';
import { Code, NO_MS, NO_TOKEN, readVote, tokenDigits, type Vote } from './lock-script.js';
import type { RedlockCommand } from './node.js';
import { AgreementPoll, Poll } from './poll.js';
import type { RedlockRequest } from './redlock-request.js';
import { recount } from './renewal.js';

type RoundOutcome = 'elected' | 'busy' | 'forgetful' | 'unavailable';

/** A grant, and the time until which its key must stay locked even if the hold ends (`minHold`). */
export interface RedlockGrant extends Grant {
  readonly keptUntil: number;
}

/**
 * One round of a request: votes are requested from all nodes in parallel, and a majority grants the lock.
 *
 * Mutual exclusion: two majorities that exist at the same time share a node, and a node votes for only one holder.
 *
 * Tokens grow: before a lock is granted, its token is written into the votes of a majority and into the counters of
 * those nodes. A later holder's majority shares a node with them. That node could cast its new vote only after the old
 * one had ended, and thus after the write, so it returns a larger token. The new grant takes the largest token
 * returned. For this, a majority must have counters. A node without a counter has lost it and only contributes its
 * clock. If a majority has no counter, the namespace is new, or a majority has lost its data and only the clocks are
 * left.
 *
 * Callers in one process that hold the lock one after another get a block of tokens. The nodes compare its first token
 * with their counter, and store its last one. So the first token is larger than any in earlier blocks, and a later
 * block's first token is larger than this block's last. If a hold is found again, only its last token is known, so it
 * can't be passed on.
 *
 * All keys share a node's counter. A node that has lost it gets a new one only from a write that arrives together with
 * its own vote: a majority with counters returned that token after the loss, so it is larger than all tokens granted
 * before. Any other write may date from before the loss, with a token older than those granted since. If enough nodes
 * had such a counter, they would agree on a smaller token. The counter doesn't protect a lock that was being granted
 * while the node lost its data. `delayedRestart` covers that case.
 */
export class Round extends Poll<RoundOutcome> {
  readonly #number: string;
  readonly #kept: number;
  /** The number of callers that could use the grant one after another. */
  readonly #callers: number;
  /** The vote of a node that accepted the proposed token. */
  readonly #named: Vote;
  readonly #received: Vote[] = [];
  /** How many of the votes come from nodes without a counter. */
  #forgetful = 0;
  /** The last token of the block, after a majority has agreed on it. */
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

  /** @throws LockUnavailableError if no majority responds */
  async run(): Promise<RedlockGrant | 'busy'> {
    const outcome = await this.start();
    if (outcome === 'busy') {
      this.#cleanUp();
      return 'busy';
    }
    if (outcome === 'unavailable') throw this.#failed(this.cause);
    if (outcome === 'forgetful') {
      throw this.#failed(new Error('Some nodes have lost their data, and the others are not a majority.'));
    }
    const { nodes } = this;
    const followers = this.#isFound ? 0 : this.#callers - 1;
    const carried = this.#carried();
    const token = carried ?? this.largest + followers;
    this.#token = token;
    if (carried === undefined) await this.#writeBack(token);
    else if (this.#forgetful > 0 || nodes.tokens.isMissingAtNode) nodes.send(this.#write(token));
    nodes.tokens.isMissingAtNode = false;
    this.#isGranted = true;
    this.own.votes.countRound(this.#number);
    return this.#grant(token - followers, followers);
  }

  /** Ends the round as `busy` because the callers have left. Votes that still arrive are cleaned up. */
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

  /** The largest token returned by any node. */
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
   * A vote that arrives after the grant counts if it carries the grant's token: the node didn't know a larger one, so
   * its vote didn't contribute to any other grant in between. Any other vote needs a recount.
   */
  protected override onLate(reply: unknown, node: number): void {
    const vote = this.#read(reply, node);
    if (!vote) return;
    if (!vote.remembers) {
      this.nodes.tokens.isMissingAtNode = true;
      if (this.#token !== undefined) this.nodes.send(this.#write(this.#token));
    }
    if (!this.#isGranted) return;
    if (vote.written === this.#token) this.own.votes.count(node, this.#number);
    else recount(this.own, this.lease);
  }

  /** Whether a vote carries the token of an earlier round with an unknown outcome. */
  get #isFound(): boolean {
    return this.#received.some((vote) => vote !== this.#named && vote.written > 0);
  }

  /** The token that a majority of the votes already carries. */
  #carried(): number | undefined {
    for (const { written } of this.#received) {
      let count = 0;
      for (const vote of this.#received) if (vote.written === written) count += 1;
      if (written > 0 && count >= this.nodes.majority) return written;
    }
    return undefined;
  }

  /** Writes this token to a majority. It is the last of a block that starts with the largest token returned. */
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
      throw this.#failed(new Error('The votes arrived after the lease had ended.'));
    }
    return {
      lease,
      fencingToken: BigInt(token),
      followers,
      validUntil: deadline,
      keptUntil: minHold > 0 ? sentAt + minHold : 0,
    };
  }

  /** How long a majority of the votes lasts after `sentAt`, in ms. */
  #lasting(): number {
    const left = this.#received.map((vote) => Math.min(vote.left, this.#kept)).sort((a, b) => b - a);
    return left[this.nodes.majority - 1] ?? 0;
  }

  /**
   * Ends the round's votes. On each connection, this follows the vote request, so it also ends votes that are still in
   * flight.
   */
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
    // If no votes were requested, the request left nothing behind.
    return this.nodes.unavailable(request.key, { cause, refusals: this.refusals }, votes.isSent);
  }

  #read(reply: unknown, node: number): Vote | undefined {
    const vote = reply === 1 ? this.#named : typeof reply === 'string' ? readVote(reply) : undefined;
    if (vote) this.own.votes.acknowledge(node, this.#number);
    else this.own.votes.refused(node, this.#number);
    return vote;
  }
}
