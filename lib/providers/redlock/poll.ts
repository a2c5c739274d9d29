import type { Clock, Timer } from '../../api/clock.js';
import type { OperationArguments } from './quorum-script.js';
import type { Votes } from './votes.js';

/** How many of `seats` nodes are a majority. */
export function majorityOf(seats: number): number {
  return Math.floor(seats / 2) + 1;
}

/** What a {@link Poll} needs besides its question. */
export interface PollTerms {
  readonly seats: number;
  readonly clock: Clock;
  /** How long a node's answer is waited for, in ms; later it counts as a fault. */
  readonly patience: number;
}

/**
 * One question to all nodes, decided as soon as enough of them have spoken.
 *
 * A fault is what is not an answer: a node that is down, refuses, or has not answered in time. It is never counted as a no.
 */
export abstract class Poll<T> {
  yes = 0;
  no = 0;
  faults = 0;
  /** Why a node has not answered. */
  cause: unknown;
  /** When it was sent, on the monotonic clock: before the first node got it. */
  sentAt = 0;
  readonly majority: number;
  readonly outcome: Promise<T>;
  #resolve!: (outcome: T) => void;
  #decided = false;
  #closed = false;
  #timer: Timer | undefined;

  constructor(
    readonly lock: string,
    readonly args: OperationArguments,
    protected readonly terms: PollTerms,
    /** The votes of the attempt that the question is about. */
    readonly votes?: Votes,
  ) {
    this.majority = majorityOf(terms.seats);
    this.outcome = new Promise((resolve) => (this.#resolve = resolve));
  }

  /** Whether it makes a node vote. */
  get isVote(): boolean {
    return this.args[0] === 'V' || this.args[0] === 'A';
  }

  /** Whether the node of this seat is asked. */
  isFor(_seat: number): boolean {
    return true;
  }

  /** It is decided. */
  get isOver(): boolean {
    return this.#decided;
  }

  get isClosed(): boolean {
    return this.#closed || this.spoken === this.terms.seats;
  }

  get spoken(): number {
    return this.yes + this.no + this.faults;
  }

  /** So many noes, or faults, that the others are no majority. */
  isBlocked(count: number): boolean {
    return count > this.terms.seats - this.majority;
  }

  onSent(at: number): void {
    this.sentAt = at;
    if (this.#decided) return;
    this.#timer = this.terms.clock.setTimer(() => {
      // After a blocked event loop timers run before sockets are read, so what has arrived is read first.
      this.#timer = this.terms.clock.setTimer(() => {
        this.#closed = true;
        this.cause ??= new Error('No answer in time.');
        this.#look();
      }, 1);
    }, this.terms.patience);
  }

  onReply(reply: unknown, seat: number): void {
    if (this.#decided) {
      this.onLate(reply, seat);
      return;
    }
    if (this.counts(reply, seat)) this.yes += 1;
    else this.no += 1;
    this.#look();
  }

  onFault(cause: unknown): void {
    if (this.#decided) return;
    this.faults += 1;
    this.cause = cause;
    this.#look();
  }

  /** Decides now, whatever comes. */
  settle(outcome: T): void {
    if (this.#decided) return;
    this.#decided = true;
    if (this.#timer !== undefined) this.terms.clock.clearTimer(this.#timer);
    this.#resolve(outcome);
  }

  /** Whether the reply is a yes. */
  protected counts(reply: unknown, _seat: number): boolean {
    return reply === 1;
  }

  protected onLate(_reply: unknown, _seat: number): void {
    // Most have no use for it.
  }

  /** The outcome, once it is certain. When the poll is closed nothing more will come, and it must decide. */
  protected abstract decide(): T | undefined;

  #look(): void {
    const outcome = this.decide();
    if (outcome !== undefined) this.settle(outcome);
  }
}
