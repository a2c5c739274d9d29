import { Poll, type PollTerms } from './poll.js';
import { type OperationArguments, readVoteOnShow, type VoteOnShow } from './quorum-script.js';
import type { Votes } from './votes.js';

/** Whether a majority has agreed to a write. `lost`: a majority cannot any more. */
export class Assent extends Poll<'given' | 'lost' | 'unknown'> {
  protected override decide(): 'given' | 'lost' | 'unknown' | undefined {
    if (this.yes >= this.majority) return 'given';
    if (this.isBlocked(this.no)) return 'lost';
    return this.isClosed || this.isBlocked(this.faults) ? 'unknown' : undefined;
  }
}

/** Whether a majority is without the holder's vote now. */
export class Resignation extends Poll<'released' | 'lost' | 'unknown'> {
  protected override decide(): 'released' | 'lost' | 'unknown' | undefined {
    if (this.yes >= this.majority) return 'released';
    if (this.isBlocked(this.no)) return 'lost';
    if (this.isBlocked(this.faults)) return 'unknown';
    if (!this.isClosed) return undefined;
    // Over for certain, at a majority. Whether a majority had it before, the nodes that are silent would have to say.
    return this.yes + this.no >= this.majority ? 'released' : 'unknown';
  }
}

/** Whether somebody has a majority, and is deprived of it. */
export class Deposition extends Poll<boolean | 'unknown'> {
  protected override decide(): boolean | 'unknown' | undefined {
    if (this.yes >= this.majority) return true;
    if (this.isBlocked(this.no)) return false;
    if (this.isBlocked(this.faults)) return 'unknown';
    if (!this.isClosed) return undefined;
    return this.yes + this.no >= this.majority ? this.yes > 0 : 'unknown';
  }
}

/** Who has a majority of the votes. */
export class Census extends Poll<readonly VoteOnShow[] | 'nobody' | 'unknown'> {
  readonly #parties = new Map<string, VoteOnShow[]>();

  protected override counts(reply: unknown): boolean {
    const vote = readVoteOnShow(reply);
    if (!vote) return false;
    const party = this.#parties.get(vote.holder);
    if (party) party.push(vote);
    else this.#parties.set(vote.holder, [vote]);
    return true;
  }

  protected override decide(): readonly VoteOnShow[] | 'nobody' | 'unknown' | undefined {
    let largest: VoteOnShow[] = [];
    for (const party of this.#parties.values()) if (party.length > largest.length) largest = party;
    if (largest.length >= this.majority) return largest;
    const silent = this.terms.seats - this.spoken;
    if (!this.isBlocked(this.faults) && largest.length + this.faults + silent < this.majority) return 'nobody';
    if (!this.isClosed) return undefined;
    return this.yes + this.no >= this.majority ? 'nobody' : 'unknown';
  }
}

/**
 * Whether a majority of the nodes has extended votes that count. `lost`: a majority cannot any more.
 *
 * It is decided as soon as a majority has spoken. Only then, and only after a success, nodes that have lost the vote are asked for it again.
 */
export class Extension extends Poll<'given' | 'lost' | 'unknown'> {
  /** The votes that were acknowledged when it was sent. */
  #acknowledged: readonly (string | undefined)[] = [];
  readonly #missing: number[] = [];

  constructor(
    lock: string,
    args: OperationArguments,
    terms: PollTerms,
    override readonly votes: Votes,
    /** This node has lost the vote, or never gave it. */
    private readonly askAgain: (seat: number) => void,
  ) {
    super(lock, args, terms, votes);
  }

  override onSent(at: number): void {
    this.#acknowledged = this.votes.acknowledged();
    super.onSent(at);
  }

  protected override counts(reply: unknown, seat: number): boolean {
    if (typeof reply !== 'string') {
      this.#missing.push(seat);
      return false;
    }
    this.votes.acknowledge(seat, reply);
    return this.votes.counts(seat, reply);
  }

  protected override onLate(reply: unknown, seat: number): void {
    if (typeof reply === 'string') this.votes.acknowledge(seat, reply);
    else if (this.#hasSucceeded) this.askAgain(seat);
  }

  protected override decide(): 'given' | 'lost' | 'unknown' | undefined {
    if (this.#hasSucceeded) {
      this.#acknowledged.forEach((round, seat) => {
        if (round !== undefined) this.votes.count(seat, round);
      });
      for (const seat of this.#missing) this.askAgain(seat);
      return 'given';
    }
    if (this.isBlocked(this.no)) return 'lost';
    return this.isClosed || this.isBlocked(this.faults) ? 'unknown' : undefined;
  }

  get #hasSucceeded(): boolean {
    return this.yes >= this.majority;
  }
}

/** What need not be answered: cleaning up after a round. */
export class Errand extends Poll<unknown> {
  override onSent(): void {
    // Nobody waits for it.
  }

  protected override decide(): undefined {
    return undefined;
  }
}

/** Asks one node again for a vote that it has lost. It need not be answered. */
export class RepeatedAsk extends Errand {
  constructor(
    private readonly seat: number,
    lock: string,
    args: OperationArguments,
    terms: PollTerms,
    override readonly votes: Votes,
  ) {
    super(lock, args, terms, votes);
  }

  /** Sent behind the release, the vote would outlive it. */
  override get isOver(): boolean {
    return this.votes.isReleased;
  }

  override isFor(seat: number): boolean {
    return seat === this.seat;
  }

  protected override counts(reply: unknown, seat: number): boolean {
    if (reply === 1) this.votes.acknowledge(seat, this.args[4]);
    return reply === 1;
  }
}
