import type { Clock, Timer } from '../../api/clock.js';
import type { Command } from './command.js';

/** What a {@link Poll} asks the nodes. */
export interface Question extends Pick<Command, 'lock' | 'args' | 'votes'> {
  /** Whether the reply is a yes. Default: 1 is. */
  isYes?(reply: unknown, node: number): boolean;
  /** Called with each reply that comes after the decision. */
  onLate?(reply: unknown, node: number): void;
}

/**
 * The answers to one question so far.
 *
 * A fault is anything but an answer: a node that is down, refuses, or has not answered in time. It is never counted as a no.
 */
export class Answers {
  yes = 0;
  no = 0;
  faults = 0;
  isTimedOut = false;

  constructor(
    readonly nodes: number,
    readonly majority: number,
  ) {}

  /** A majority has said yes. */
  get isAgreed(): boolean {
    return this.yes >= this.majority;
  }

  /** So many have said no that the others are no majority. */
  get isRefused(): boolean {
    return this.no > this.nodes - this.majority;
  }

  /** So many do not answer that the others are no majority. */
  get isUnavailable(): boolean {
    return this.faults > this.nodes - this.majority;
  }

  /** A majority has said yes or no. */
  get isAnswered(): boolean {
    return this.yes + this.no >= this.majority;
  }

  /** How many nodes have not answered yet. */
  get missing(): number {
    return this.nodes - this.yes - this.no - this.faults;
  }

  /** Nothing more is waited for, so it must be decided now. */
  get isComplete(): boolean {
    return this.isTimedOut || this.missing === 0;
  }
}

/** The outcome, once it is certain; until then nothing. It must decide when the answers are complete. */
export type Decide<T> = (answers: Answers) => T | undefined;

/** What a majority has answered. */
export type Agreement =
  | 'agreed'
  /** A majority cannot agree any more. */
  | 'refused'
  /** A majority has answered, some of them with yes. Whether a majority agrees, only the silent nodes could answer. */
  | 'undecided'
  /** No majority has answered. */
  | 'unknown';

/** Decides whether a majority agrees. */
export function agreement(answers: Answers): Agreement | undefined {
  if (answers.isAgreed) return 'agreed';
  if (answers.isRefused) return 'refused';
  if (answers.isUnavailable) return 'unknown';
  if (!answers.isComplete) return undefined;
  return answers.isAnswered ? 'undecided' : 'unknown';
}

/** One question to all nodes, decided as soon as enough of them have answered. */
export class Poll<T> implements Command {
  readonly lock: Command['lock'];
  readonly args: Command['args'];
  readonly votes: Command['votes'];
  /** When it was sent, on the monotonic clock: before the first node got it. */
  sentAt = 0;
  /** Why a node has not answered. */
  cause: unknown;
  readonly outcome: Promise<T>;
  #resolve!: (outcome: T) => void;
  #isOpen = true;
  #timer: Timer | undefined;

  constructor(
    private readonly question: Question,
    private readonly answers: Answers,
    private readonly decide: Decide<T>,
    private readonly clock: Clock,
    private readonly timeout: number,
  ) {
    this.lock = question.lock;
    this.args = question.args;
    this.votes = question.votes;
    this.outcome = new Promise((resolve) => (this.#resolve = resolve));
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  onSent(at: number): void {
    this.sentAt = at;
    if (!this.#isOpen) return;
    this.#timer = this.clock.setTimer(() => {
      // After a blocked event loop timers run before sockets are read, so replies that have arrived are read first.
      this.#timer = this.clock.setTimer(() => {
        this.answers.isTimedOut = true;
        this.cause ??= new Error('No answer in time.');
        this.#look();
      }, 1);
    }, this.timeout);
  }

  onReply(reply: unknown, node: number): void {
    const { question, answers } = this;
    if (!this.#isOpen) {
      question.onLate?.(reply, node);
      return;
    }
    if (question.isYes ? question.isYes(reply, node) : reply === 1) answers.yes += 1;
    else answers.no += 1;
    this.#look();
  }

  onFault(cause: unknown): void {
    if (!this.#isOpen) return;
    this.answers.faults += 1;
    this.cause = cause;
    this.#look();
  }

  /** Decides now, whatever the answers are. */
  settle(outcome: T): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#resolve(outcome);
  }

  #look(): void {
    const outcome = this.decide(this.answers);
    if (outcome !== undefined) this.settle(outcome);
  }
}
