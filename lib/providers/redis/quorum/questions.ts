import { Poll } from './poll.js';
import { readVoteOnShow, type VoteOnShow } from './quorum-script.js';

/** Whether a majority has agreed to a write, an extension. `lost`: a majority cannot any more. */
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

/** What need not be answered: cleaning up after a round. */
export class Errand extends Poll<unknown> {
  override onSent(): void {
    // Nobody waits for it.
  }

  protected override decide(): undefined {
    return undefined;
  }
}
