import type { LockUnavailableError } from '../../api/errors.js';
import type { AcquireRequest, BackendContext, Grant } from '../../api/lock-provider.js';
import { validUntil } from '../../core/toolkit/validity.js';
import {
  blockDigits,
  NO_TOKEN,
  type OperationArguments,
  readVote,
  tokenDigits,
  type Vote,
  wholeMs,
} from './lock-script.js';
import type { Nodes } from './nodes.js';
import { agreement, type Answers, type Poll, type Question } from './poll.js';
import type { Votes } from './votes.js';

type Outcome = 'elected' | 'busy' | 'forgetful' | 'unavailable';

/** A grant, and until when its key must stay locked whatever happens to the holder. */
export interface RedlockGrant extends Grant {
  readonly keptUntil: number;
}

/**
 * One round of an attempt: all nodes are asked for their votes at the same time, and a majority of them is a lock.
 *
 * Exclusion: two majorities of votes that exist at the same time share a node, and a node votes for one holder.
 *
 * Tokens grow: the token of a grant was written, before the lock was granted, into votes of a majority that existed at that time, and into
 * the counters of those nodes. A later holder's majority shares a node with them. That node's new vote came after its old one was over, so
 * after the write, and names a larger token; the new token is the largest that was named. This needs a majority that
 * remembers. A node without a counter has lost it, and only adds its clock. When no majority has a counter, the
 * namespace is new (or a majority has lost its data, and the clocks are all that is left).
 *
 * Callers of a process that hold the lock one after the other have a block of tokens. Nodes compare its first one with what they know, and
 * all that is said of a token's writing holds for its last one. So the first is larger than all earlier blocks, and a later
 * first is larger than the last. Of a hold that is found again only the last token is known, so it has no followers.
 *
 * A node that has lost its counter, which all keys share, remembers again only by a write that comes together with its own vote: a majority
 * that remembers has named that token after the loss, so after all that was granted before. Any other write may have been in
 * flight since before the loss, older than tokens that were granted meanwhile; enough such nodes would make up a smaller token. The
 * counter is not enough for a lock that was just being granted while the node lost its data: `delayedRestart` outlasts those.
 */
export class Round implements Question {
  readonly args: OperationArguments;
  readonly #number: string;
  readonly #kept: number;
  /** How many callers it could serve one after the other. */
  readonly #callers: number;
  readonly #received: Vote[] = [];
  /** How many of the votes come from nodes without a counter. */
  #forgetful = 0;
  /** What was agreed on: the last token of the block. */
  #token: number | undefined;
  #isGranted = false;
  #poll: Poll<Outcome> | undefined;

  constructor(
    private readonly context: BackendContext,
    private readonly nodes: Nodes,
    readonly lock: string,
    private readonly request: AcquireRequest,
    readonly votes: Votes,
  ) {
    const { id, lease, renew, minHold } = request;
    this.#callers = renew && minHold === 0 ? request.callers : 1;
    const estimate = nodes.tokens.next(context.clock.now(), this.#callers);
    const token = estimate === undefined ? NO_TOKEN : blockDigits(estimate, this.#callers);
    this.#kept = Math.max(lease, minHold);
    this.#number = nodes.nextRound();
    this.args = ['V', id, wholeMs(this.#kept), token, this.#number];
  }

  /** @throws LockUnavailableError when a majority does not answer. */
  async run(): Promise<RedlockGrant | 'busy'> {
    const poll = this.nodes.poll(this, (answers) => this.decide(answers), this.request.lease);
    this.#poll = poll;
    const outcome = await poll.outcome;
    if (outcome === 'busy') {
      this.#cleanUp();
      return 'busy';
    }
    if (outcome === 'unavailable') throw this.#failed(poll.cause);
    if (outcome === 'forgetful') {
      throw this.#failed(
        new Error('Some nodes have lost their data, and those that answer and remember are no majority.'),
      );
    }
    const followers = this.#isFound ? 0 : this.#callers - 1;
    const token = await this.#agree(followers);
    this.#isGranted = true;
    this.votes.countRound(this.#number);
    return this.#grant(token, followers, poll.sentAt);
  }

  /** The caller has left: answers `busy` now. Votes that the round still gets are cleaned up. */
  end(): void {
    this.#poll?.settle('busy');
  }

  isYes(reply: unknown, node: number): boolean {
    const vote = this.#read(reply, node);
    if (!vote) return false;
    this.#received.push(vote);
    if (!vote.remembers) this.#forgetful += 1;
    return true;
  }

  /**
   * A vote that comes after the grant counts with the others if it carries the token of the grant: the node knew no larger token, so nobody
   * was granted by its vote in between.
   */
  onLate(reply: unknown, node: number): void {
    const vote = this.#read(reply, node);
    if (!vote) return;
    if (!vote.remembers) {
      this.nodes.tokens.missedAtNode();
      if (this.#token !== undefined) this.nodes.send(this.#write(this.#token));
    }
    if (this.#isGranted && vote.written === this.#token) this.votes.count(node, this.#number);
  }

  decide(answers: Answers): Outcome | undefined {
    if (answers.isAgreed) {
      const remembering = answers.yes - this.#forgetful;
      if (remembering >= answers.majority || this.#forgetful >= answers.majority) return 'elected';
    } else if (answers.isRefused) return 'busy';
    if (answers.isUnavailable) return 'unavailable';
    if (!answers.isComplete) return undefined;
    if (answers.isAgreed) return 'forgetful';
    return answers.isAnswered ? 'busy' : 'unavailable';
  }

  /** The largest token that a node has named. */
  get largest(): number {
    return Math.max(...this.#received.map(({ written, least }) => Math.max(written, least)));
  }

  /** Whether a vote carries a token of an earlier round, whose outcome was unknown. */
  get #isFound(): boolean {
    return this.#received.some(({ written, left }) => written > 0 && left !== undefined);
  }

  /**
   * Makes one token known to a majority: the one that a majority of the votes carries already, or the last of a block that begins with the
   * largest that was named. Answers the first.
   */
  async #agree(followers: number): Promise<number> {
    const { nodes, context, request } = this;
    const { tokens } = nodes;
    const carried = this.#carried();
    if (carried !== undefined) {
      this.#token = carried;
      if (this.#forgetful > 0 || tokens.isMissingAtNode) nodes.send(this.#write(carried));
    } else {
      this.#token = this.largest + followers;
      const write = nodes.poll(this.#write(this.#token), agreement, request.lease);
      if ((await write.outcome) !== 'agreed') throw this.#failed(write.cause);
      tokens.observe(this.#token, context.clock.now());
    }
    tokens.granted();
    return this.#token - followers;
  }

  #carried(): number | undefined {
    for (const { written } of this.#received) {
      const count = this.#received.filter((vote) => vote.written === written).length;
      if (written > 0 && count >= this.nodes.majority) return written;
    }
    return undefined;
  }

  #grant(token: number, followers: number, sentAt: number): RedlockGrant {
    const { lease, minHold } = this.request;
    const deadline = validUntil(sentAt, Math.min(lease, this.#lasting()));
    if (this.context.clock.now() >= deadline) {
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
    const left = this.#received.map((vote) => Math.min(vote.left ?? this.#kept, this.#kept)).sort((a, b) => b - a);
    return left[this.nodes.majority - 1] ?? 0;
  }

  /** Ends the round's votes. On each connection this follows the round's question, so it also ends votes that are still in flight. */
  #cleanUp(): void {
    if (!this.votes.mayExist) return;
    const args = ['C', this.request.id, '0', NO_TOKEN, this.#number] as const;
    this.nodes.send({ lock: this.lock, args, votes: this.votes });
  }

  #write(token: number): Question {
    return { lock: this.lock, args: ['W', this.request.id, '0', tokenDigits(token), this.#number] };
  }

  #failed(cause: unknown): LockUnavailableError {
    this.#cleanUp();
    // Where no vote may exist, nothing is left of the attempt.
    return this.nodes.unavailable(this.request.key, cause, this.votes.mayExist);
  }

  #read(reply: unknown, node: number): Vote | undefined {
    const vote = readVote(reply);
    if (vote) this.votes.acknowledge(node, this.#number);
    else this.votes.refused(node);
    return vote;
  }
}
