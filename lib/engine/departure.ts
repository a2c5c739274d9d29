import type { Clock, Timer } from './clock.js';

/** Why a waiter left before it was served. */
export type Leaving =
  | { readonly why: 'timeout' }
  | { readonly why: 'aborted'; readonly reason: unknown }
  | { readonly why: 'dismissed'; readonly error: Error };

/** The ways out for one waiter: its deadline, its signal, and dismissal at shutdown. Whichever comes first counts. */
export class Departure {
  #left: Leaving | undefined;
  #leave!: (leaving: Leaving) => void;
  readonly #leaving = new Promise<Leaving>((resolve) => {
    this.#leave = resolve;
  });
  #timer: Timer | undefined;
  readonly #onAbort = () => {
    this.#end({ why: 'aborted', reason: this.signal?.reason });
  };

  constructor(
    private readonly clock: Clock,
    /** When the wait is over, as things stand. */
    private readonly deadline: () => number,
    private readonly signal: AbortSignal | undefined,
  ) {
    this.look();
    if (signal?.aborted) this.#onAbort();
    else signal?.addEventListener('abort', this.#onAbort, { once: true });
  }

  get left(): Leaving | undefined {
    return this.#left;
  }

  /** Settles with `work`, or with the reason for leaving if that comes first. */
  async before<T>(work: Promise<T>): Promise<{ readonly value: T } | undefined> {
    if (this.#left) return undefined;
    const first = await Promise.race([work.then((value) => ({ value })), this.#leaving]);
    return 'value' in first ? first : undefined;
  }

  /** Waits for `delay` ms; answers false if the waiter left meanwhile. */
  async pause(delay: number): Promise<boolean> {
    let timer: Timer | undefined;
    const over = new Promise<void>((resolve) => {
      timer = this.clock.setTimer(resolve, delay);
    });
    const passed = await this.before(over);
    if (timer !== undefined) this.clock.clearTimer(timer);
    return passed !== undefined;
  }

  /** The application stops. */
  dismiss(error: Error): void {
    this.#end({ why: 'dismissed', error });
  }

  /** Leaves if the wait is over, and otherwise wakes when it will be. Called again whenever the deadline has moved. */
  look(): void {
    if (this.#left) return;
    this.#disarm();
    const deadline = this.deadline();
    if (deadline === Infinity) return;
    const remaining = deadline - this.clock.now();
    if (remaining <= 0) this.#end({ why: 'timeout' });
    else {
      this.#timer = this.clock.setTimer(() => {
        this.look();
      }, Math.ceil(remaining));
    }
  }

  /** Takes down the timer and the listener. */
  dispose(): void {
    this.#disarm();
    this.signal?.removeEventListener('abort', this.#onAbort);
  }

  #disarm(): void {
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }

  #end(leaving: Leaving): void {
    if (this.#left) return;
    this.#left = leaving;
    this.dispose();
    this.#leave(leaving);
  }
}
