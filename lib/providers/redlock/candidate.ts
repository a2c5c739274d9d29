import { type AcquireRequest, type Grant, type ProviderContext } from '../../api/lock-provider.js';
import { type Timer } from '../../api/clock.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { LockUnavailableError } from '../../api/errors.js';
import { Ballot } from './ballot.js';
import type { Electorate } from './electorate.js';
import type { PollTerms } from './poll.js';
import { Assent, Errand } from './questions.js';
import { NO_TOKEN, roundDigits, tokenDigits, wholeMs } from './quorum-script.js';
import type { TokenEstimate } from './token-estimate.js';
import { Votes } from './votes.js';

// The pause after a round without a winner is drawn from a window that doubles: contenders that have split the votes come back at
// different times, since a round takes about a millisecond; and who waits for long asks some eight times a second.
const FIRST_WINDOW = 16;
const LARGEST_WINDOW = 250;
// The last round of a wait begins this many ms before its end: a key that got free by then is not missed.
const LAST_ASK = 20;

/** What candidates of one provider share. */
export interface Election {
  readonly context: ProviderContext;
  readonly electorate: Electorate;
  readonly estimate: TokenEstimate;
  /** How a question about a lock with this lease is asked. */
  termsFor(lease: number): PollTerms;
  /** A node without a counter has answered after a decision, and maybe after a release: it is told the next token while that vote stands. */
  hasForgetful: boolean;
  /** Rounds are numbered through, so that a clean-up never meets a later round of the same holder. */
  nextRound(): number;
}

/** A grant, its votes, and until when its key must stay taken whatever happens to the holder. */
export interface QuorumGrant extends Grant {
  readonly keptUntil: number;
  readonly votes: Votes;
}

/** One attempt to get a majority of the votes, in as many rounds as it takes while its caller waits. */
export class Candidate {
  readonly votes = new Votes();
  #left = false;
  #isWaiting = false;
  #endRound: (() => void) | undefined;
  #endPause: (() => void) | undefined;

  constructor(
    private readonly election: Election,
    private readonly lock: string,
    private readonly request: AcquireRequest,
  ) {}

  /** @throws LockUnavailableError when a majority does not answer. */
  async run(): Promise<QuorumGrant | 'busy'> {
    const { request } = this;
    for (let failures = 0; ; failures += 1) {
      const outcome = await this.#stand();
      if (outcome !== 'busy') return outcome;
      if (request.wait <= 0 || this.#left) return 'busy';
      this.#queue();
      await this.#pause(failures);
      if (this.#hasLeft()) return 'busy';
    }
  }

  /** The key was just released in this process: ask right behind the release, if it pauses. */
  hurry(): void {
    this.#endPause?.();
  }

  /** Its release is sent: no further vote may be asked for. */
  withdraw(): void {
    this.#left = true;
    this.#endRound?.();
    this.#endPause?.();
  }

  async #stand(): Promise<QuorumGrant | 'busy'> {
    const { electorate, estimate, context } = this.election;
    const { holder, lease, minHold, key, mode } = this.request;
    const kept = Math.max(lease, minHold);
    const round = roundDigits(this.election.nextRound());
    const hint = estimate.next(context.clock.now());
    const token = hint === undefined ? NO_TOKEN : tokenDigits(hint);
    const terms = this.election.termsFor(lease);
    let agreed: number | undefined;
    const ballot = new Ballot(this.lock, ['V', holder, wholeMs(kept), token, round], terms, this.votes, () => {
      this.election.hasForgetful = true;
      if (agreed !== undefined) this.#tell(agreed, round);
    });
    // Who leaves in mid-round has an answer at once. What the round may still get is cleaned up after.
    this.#endRound = () => {
      ballot.settle('busy');
    };
    const outcome = await electorate.ask(ballot);
    this.#endRound = undefined;
    if (outcome !== 'elected') {
      if (this.votes.mayStand) this.#cleanUp(round);
      if (outcome === 'busy') return 'busy';
      throw this.#unavailable(ballot.cause);
    }
    agreed = ballot.token;
    if (agreed === undefined) {
      agreed = ballot.largest;
      const written = new Assent(this.lock, ['W', holder, '0', tokenDigits(agreed), round], terms);
      if ((await electorate.ask(written)) !== 'given') {
        this.#cleanUp(round);
        throw this.#unavailable(written.cause);
      }
      estimate.observe(agreed, context.clock.now());
    } else if (ballot.hasForgetful || this.election.hasForgetful) {
      this.#tell(agreed, round);
    }
    this.election.hasForgetful = false;
    ballot.count(agreed);

    const standing = ballot.lasting(kept);
    const deadline = validUntil(ballot.sentAt, Math.min(lease, standing));
    const now = context.clock.now();
    if (now >= deadline) {
      this.#cleanUp(round);
      throw this.#unavailable(new Error('The votes came when the lease was over.'));
    }
    return {
      key,
      holder,
      mode,
      lease,
      fencingToken: BigInt(agreed),
      validUntil: deadline,
      keptUntil: minHold > 0 ? ballot.sentAt + minHold : 0,
      votes: this.votes,
    };
  }

  #queue(): void {
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    const { signal, holder } = this.request;
    if (signal.aborted) this.#left = true;
    else {
      signal.addEventListener(
        'abort',
        () => {
          this.withdraw();
        },
        { once: true },
      );
    }
    this.election.context.emit({ type: 'waiting', holder });
  }

  async #pause(failures: number): Promise<void> {
    if (this.#left) return;
    const { clock, random } = this.election.context;
    const window = Math.min(FIRST_WINDOW * 2 ** failures, LARGEST_WINDOW);
    let timer: Timer | undefined;
    await new Promise<void>((resolve) => {
      this.#endPause = resolve;
      const delay = 1 + random.fraction() * window;
      const untilLast = this.request.wait - LAST_ASK;
      timer = clock.setTimer(resolve, untilLast > 0 ? Math.min(delay, untilLast) : delay);
    });
    this.#endPause = undefined;
    if (timer !== undefined) clock.clearTimer(timer);
  }

  #hasLeft(): boolean {
    return this.#left;
  }

  // On each connection this goes behind the round's ask, so it also ends votes that are still under way.
  #cleanUp(round: string): void {
    this.#send(['C', this.request.holder, '0', NO_TOKEN, round]);
  }

  #tell(token: number, round: string): void {
    this.#send(['W', this.request.holder, '0', tokenDigits(token), round]);
  }

  #send(args: ConstructorParameters<typeof Errand>[1]): void {
    const terms = this.election.termsFor(this.request.lease);
    void this.election.electorate.ask(new Errand(this.lock, args, terms, this.votes));
  }

  #unavailable(cause: unknown): LockUnavailableError {
    const { name } = this.election.context;
    return new LockUnavailableError(
      `Lock "${this.request.key}" of provider "${name}": no majority of the Redis nodes answered in time; check the nodes and their logs.`,
      // Where no vote may stand, nothing of it is left.
      { key: this.request.key, provider: name, cause, sent: this.votes.mayStand },
    );
  }
}
