import type { Clock, Timer } from '../../../api/clock.js';
import { silentFor } from './in-time.js';

/** How a statement is sent, and for how long it is waited for. */
export interface TurnLimits {
  /** Whether it may be sent only while the transaction lasts. Default false. */
  readonly inTransaction?: boolean;
  /** How long the server may work on it by itself, in ms. Default 0. */
  readonly answeredWithin?: number;
  /** After how many ms its caller is told that the server is silent. Default: never. */
  readonly timeout?: number | undefined;
}

/**
 * One statement of a session, from its request to its answer; or no statement, where its turn is all that is waited for.
 *
 * It makes one promise: on Node 20 each costs what ten calls cost.
 */
export class Turn<T> {
  /** Rejects with a `SilentServerError` when that takes too long. */
  readonly answer: Promise<T>;
  readonly inTransaction: boolean;
  readonly answeredWithin: number;
  readonly #clock: Clock;
  readonly #timer: Timer | undefined;
  #resolve!: (answer: T) => void;
  #reject!: (error: unknown) => void;

  /**
   * @param send sends it; undefined where its turn is all that is waited for
   * @param onSilent called with the time of the request on the monotonic clock, when its caller is told that the server is silent
   */
  constructor(
    readonly send: (() => Promise<T>) | undefined,
    { inTransaction = false, answeredWithin = 0, timeout }: TurnLimits,
    clock: Clock,
    onSilent: (since: number) => void,
  ) {
    this.inTransaction = inTransaction;
    this.answeredWithin = answeredWithin;
    this.#clock = clock;
    this.answer = this.#promise();
    if (timeout === undefined) return;
    const since = clock.now();
    const onLate = () => {
      onSilent(since);
      const reject = this.#reject;
      // What a late answer grants has to be undone, by the caller.
      const late = this.#promise();
      late.catch(() => undefined);
      reject(silentFor(timeout, late));
    };
    this.#timer = clock.setTimer(onLate, timeout, true);
  }

  resolve(answer: T): void {
    this.#clearTimer();
    this.#resolve(answer);
  }

  reject(error: unknown): void {
    this.#clearTimer();
    this.#reject(error);
  }

  #clearTimer(): void {
    if (this.#timer !== undefined) this.#clock.clearTimer(this.#timer);
  }

  #promise(): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }
}
