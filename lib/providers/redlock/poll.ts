import type { Timer } from '../../api/clock.js';
import type { OperationArguments } from '../redis/client/batcher.js';
import { isDefiniteRefusal } from '../redis/client/refusals.js';
import type { RedlockCommand } from './node.js';
import type { RedlockNodes } from './nodes.js';
import type { Votes } from './votes.js';

/** Whether a majority agrees. */
export type Agreement =
  | 'agreed'
  /** A majority can no longer agree. */
  | 'refused'
  /** A majority has replied, some with yes. Only the silent nodes know whether a majority agrees. */
  | 'undecided'
  /** No majority has replied. */
  | 'unknown';

/**
 * An operation that is sent to all nodes, and their replies so far. It is decided as soon as enough nodes have replied.
 *
 * A node that is down, refuses, or doesn't reply in time counts as a fault, never as a no.
 */
export abstract class Poll<T> implements RedlockCommand {
  yes = 0;
  no = 0;
  faults = 0;
  /** How many faults are definite refusals. */
  refusals = 0;
  isTimedOut = false;
  /** When the operation was sent (monotonic clock), before any node received it. */
  sentAt = 0;
  /** Why a node failed. */
  cause: unknown;
  /** Whether it is undecided. */
  isOpen = true;
  #resolve!: (outcome: T) => void;
  #timer: Timer | undefined;

  /** @param lease the lock's lease in ms; replies may take at most a tenth of it */
  constructor(
    protected readonly nodes: RedlockNodes,
    readonly lock: string,
    readonly args: OperationArguments,
    readonly votes?: Votes,
    protected readonly lease = Infinity,
  ) {}

  /** Sends the operation at the end of this tick, and resolves to the outcome. Must be called only once. */
  start(): Promise<T> {
    const { clock } = this.nodes;
    this.sentAt = clock.now();
    this.#timer = clock.setTimer(() => {
      // When the event loop unblocks, timers run before sockets are read. Wait until replies that have already arrived
      // are read.
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

  /** Whether a majority said yes. */
  get isAgreed(): boolean {
    return this.yes >= this.nodes.majority;
  }

  /** Whether so many nodes said no that a majority is impossible. */
  get isRefused(): boolean {
    return this.no > this.nodes.count - this.nodes.majority;
  }

  /** Whether so many nodes failed that a majority is impossible. */
  get isUnavailable(): boolean {
    return this.faults > this.nodes.count - this.nodes.majority;
  }

  /** Whether a majority said yes or no. */
  get isAnswered(): boolean {
    return this.yes + this.no >= this.nodes.majority;
  }

  /** How many nodes have neither replied nor failed. */
  get missing(): number {
    return this.nodes.count - this.yes - this.no - this.faults;
  }

  /** Whether there is nothing left to wait for, so the poll must be decided now. */
  get isComplete(): boolean {
    return this.isTimedOut || this.missing === 0;
  }

  /** The outcome, or `undefined` while it is uncertain. Must return an outcome if `isComplete` is true. */
  abstract decide(): T | undefined;

  onReply(reply: unknown, node: number): void {
    if (!this.isOpen) {
      this.onLate(reply, node);
      return;
    }
    if (this.isYes(reply, node)) this.yes += 1;
    else this.no += 1;
    this.#settleIfDecided();
  }

  onFault(cause: unknown): void {
    if (!this.isOpen) return;
    this.faults += 1;
    this.cause = cause;
    if (isDefiniteRefusal(cause)) this.refusals += 1;
    this.#settleIfDecided();
  }

  /** Ends the poll with this outcome. */
  settle(outcome: T): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    if (this.#timer !== undefined) this.nodes.clock.clearTimer(this.#timer);
    this.#resolve(outcome);
  }

  protected isYes(reply: unknown, _node: number): boolean {
    return reply === 1;
  }

  /** Handles a reply that comes after the decision. */
  protected onLate(_reply: unknown, _node: number): void {
    // By default, a late reply changes nothing.
  }

  #settleIfDecided(): void {
    const outcome = this.decide();
    if (outcome !== undefined) this.settle(outcome);
  }
}

/** A poll whose outcome is whether a majority agrees. */
export class AgreementPoll extends Poll<Agreement> {
  decide(): Agreement | undefined {
    if (this.isAgreed) return 'agreed';
    if (this.isRefused) return 'refused';
    if (this.isUnavailable) return 'unknown';
    if (!this.isComplete) return undefined;
    return this.isAnswered ? 'undecided' : 'unknown';
  }
}
