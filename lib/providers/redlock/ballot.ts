import { Poll, type PollTerms } from './poll.js';
import { type OperationArguments, readVote, type Vote } from './quorum-script.js';
import type { Votes } from './votes.js';

/** What came of asking for votes. */
export type BallotOutcome = 'elected' | 'busy' | 'unavailable';

/**
 * The votes for one holder, in one round.
 *
 * Exclusion: two majorities of votes that stand at the same time share a node, and a node votes for one.
 *
 * Tokens grow: the token of a grant was written, before it was granted, into votes of a majority that stood at that time, and into the
 * counters of those nodes. A later holder's majority shares a node with them. That node's new vote came after its old one was over, so
 * after the writing, and names a larger token; the new token is the largest that was named. This needs a majority that
 * remembers. A node without a counter has lost it, and only adds its clock. When no majority has a counter, the
 * namespace is new (or a majority has lost its data, and the clocks are all that is left).
 *
 * A node that has lost its counter, which all keys share, remembers again only by a write with whose own vote it comes: a majority
 * that remembers has named that token after the loss, so after all that was granted before. Any other write may have been under
 * way since before the loss, older than what was granted meanwhile; enough such nodes would make up a smaller token. The counter is
 * not enough for who was just being granted while the node lost its data: `delayedRestart` outlasts those.
 */
export class Ballot extends Poll<BallotOutcome> {
  readonly #votes: Vote[] = [];
  #granted: number | undefined;
  #forgetful = 0;

  constructor(
    lock: string,
    args: OperationArguments,
    terms: PollTerms,
    override readonly votes: Votes,
    /** A node without a counter was found after the decision. */
    private readonly onForgetful: () => void,
  ) {
    super(lock, args, terms, votes);
  }

  /** The token that a majority of the votes carries already. */
  get token(): number | undefined {
    for (const { written } of this.#votes) {
      if (written > 0 && this.#votes.filter((vote) => vote.written === written).length >= this.majority) return written;
    }
    return undefined;
  }

  /** The largest token that a node has named. */
  get largest(): number {
    return Math.max(...this.#votes.map(({ written, least }) => Math.max(written, least)));
  }

  get hasForgetful(): boolean {
    return this.#forgetful > 0;
  }

  /** How long a majority of the votes stands, counted from the sending, in ms. */
  lasting(lease: number): number {
    const left = this.#votes.map((vote) => Math.min(vote.left ?? lease, lease)).sort((a, b) => b - a);
    return left[this.majority - 1] ?? 0;
  }

  /** The votes that were acknowledged by now count, with this token. */
  count(token: number): void {
    this.#granted = token;
    this.votes.countRound(this.#round);
  }

  protected override counts(reply: unknown, seat: number): boolean {
    const vote = this.#read(reply, seat);
    if (!vote) return false;
    this.#votes.push(vote);
    if (!vote.remembers) this.#forgetful += 1;
    return true;
  }

  /**
   * A vote that comes after the grant counts with the others if it carries the token of the grant: the node knew no larger token, so nobody
   * was granted by its vote in between.
   */
  protected override onLate(reply: unknown, seat: number): void {
    const vote = this.#read(reply, seat);
    if (vote?.remembers === false) this.onForgetful();
    if (vote !== undefined && vote.written === this.#granted) this.votes.count(seat, this.#round);
  }

  protected override decide(): BallotOutcome | undefined {
    if (this.yes >= this.majority) {
      const remembering = this.yes - this.#forgetful;
      if (remembering >= this.majority || this.#forgetful >= this.majority) return 'elected';
    } else if (this.isBlocked(this.no)) return 'busy';
    if (this.isBlocked(this.faults)) return 'unavailable';
    if (!this.isClosed) return undefined;
    if (this.yes >= this.majority) {
      this.cause = new Error('Some nodes have lost their data, and those that answer and remember are no majority.');
      return 'unavailable';
    }
    return this.yes + this.no >= this.majority ? 'busy' : 'unavailable';
  }

  #read(reply: unknown, seat: number): Vote | undefined {
    const vote = readVote(reply);
    if (!vote) {
      this.votes.refused(seat);
      return undefined;
    }
    this.votes.acknowledge(seat, this.#round);
    return vote;
  }

  get #round(): string {
    return this.args[4];
  }
}
