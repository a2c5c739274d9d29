import type { Timer } from '../../api/clock.js';
import type { OperationArguments } from '../redis/client/batcher.js';
import { isDefiniteRefusal } from '../redis/client/refusals.js';
import type { RedlockCommand } from './node.js';
import type { RedlockNodes } from './nodes.js';
import type { Votes } from './votes.js';

/** The answer of a majority. */
export type Agreement =
  | 'agreed'
  /** A majority cannot agree any more. */
  | 'refused'
  /** A majority has answered, some of them with yes. Whether a majority agrees, only the silent nodes could answer. */
  | 'undecided'
  /** No majority has answered. */
  | 'unknown';

/**
 * One question to all nodes, and the answers to it so far. It is decided as soon as enough of them have come.
 *
 * A fault is anything but an answer: a node that is down, refuses, or has not answered in time. It is never counted as a no.
 */
export abstract class Poll<T> implements RedlockCommand {
  yes = 0;
  no = 0;
  faults = 0;
  /** How many of the faults are refusals for good. */
  refusals = 0;
  isTimedOut = false;
  /** When it was sent, on the monotonic clock: before the first node got it. */
  sentAt = 0;
  /** Why a node has not answered. */
  cause: unknown;
  #resolve!: (outcome: T) => void;
  #isOpen = true;
  #timer: Timer | undefined;

  /** @param lease of the lock in ms: a tenth of it is the longest that the answers are waited for */
  constructor(
    protected readonly nodes: RedlockNodes,
    readonly lock: string,
    readonly args: OperationArguments,
    readonly votes?: Votes,
    protected readonly lease = Infinity,
  ) {}

  /** Asks at the end of this tick. Called once; resolves to the outcome. */
  start(): Promise<T> {
    const { clock } = this.nodes;
    this.sentAt = clock.now();
    this.#timer = clock.setTimer(() => {
      // After a blocked event loop timers run before sockets are read, so replies that have arrived are read first.
      this.#timer = clock.setTimer(() => {
        this.isTimedOut = true;
        this.cause ??= new Error('No answer in time.');
        this.#settleIfDecided();
      }, 1);
    }, this.nodes.timeoutOf(this.lease));
    return new Promise((resolve) => {
      this.#resolve = resolve;
      this.nodes.send(this);
    });
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** A majority has said yes. */
  get isAgreed(): boolean {
    return this.yes >= this.nodes.majority;
  }

  /** So many have said no that the others are no majority. */
  get isRefused(): boolean {
    return this.no > this.nodes.count - this.nodes.majority;
  }

  /** So many do not answer that the others are no majority. */
  get isUnavailable(): boolean {
    return this.faults > this.nodes.count - this.nodes.majority;
  }

  /** A majority has said yes or no. */
  get isAnswered(): boolean {
    return this.yes + this.no >= this.nodes.majority;
  }

  /** How many nodes have not answered yet. */
  get missing(): number {
    return this.nodes.count - this.yes - this.no - this.faults;
  }

  /** Nothing more is waited for, so it must be decided now. */
  get isComplete(): boolean {
    return this.isTimedOut || this.missing === 0;
  }

  /** The outcome, once it is certain; until then nothing. It must decide when the answers are complete. */
  abstract decide(): T | undefined;

  onReply(reply: unknown, node: number): void {
    if (!this.#isOpen) {
      this.onLate(reply, node);
      return;
    }
    if (this.isYes(reply, node)) this.yes += 1;
    else this.no += 1;
    this.#settleIfDecided();
  }

  onFault(cause: unknown): void {
    if (!this.#isOpen) return;
    this.faults += 1;
    this.cause = cause;
    if (isDefiniteRefusal(cause)) this.refusals += 1;
    this.#settleIfDecided();
  }

  /** Decides now, whatever the answers are. */
  settle(outcome: T): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    if (this.#timer !== undefined) this.nodes.clock.clearTimer(this.#timer);
    this.#resolve(outcome);
  }

  /** Whether the reply is a yes. */
  protected isYes(reply: unknown, _node: number): boolean {
    return reply === 1;
  }

  /** A reply has come after the decision. */
  protected onLate(_reply: unknown, _node: number): void {
    // An answer that changes nothing.
  }

  /** Whether a majority agrees, as far as that is certain. */
  protected agreement(): Agreement | undefined {
    if (this.isAgreed) return 'agreed';
    if (this.isRefused) return 'refused';
    if (this.isUnavailable) return 'unknown';
    if (!this.isComplete) return undefined;
    return this.isAnswered ? 'undecided' : 'unknown';
  }

  #settleIfDecided(): void {
    const outcome = this.decide();
    if (outcome !== undefined) this.settle(outcome);
  }
}

/** Asks whether a majority agrees. */
export class AgreementPoll extends Poll<Agreement> {
  decide(): Agreement | undefined {
    return this.agreement();
  }
}
