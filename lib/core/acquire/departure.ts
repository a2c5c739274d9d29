import type { Clock, Timer } from '../../api/clock.js';

// One listener for all that wait under a signal: Node warns of a leak from the eleventh listener on.
const waitingUnder = new WeakMap<AbortSignal, Set<Departure>>();

function leaveAll(this: AbortSignal): void {
  for (const departure of waitingUnder.get(this) ?? []) departure.leave();
}

/**
 * The ways out for one waiter: its deadline, its signal, and being sent away. Whichever comes first.
 *
 * Its timers keep the process alive, because a caller awaits them.
 */
export class Departure {
  #hasLeft = false;
  // One callback at a time rather than Promise.race with a promise of the end: each race would leave a reaction on that
  // promise, and a caller may wait for days for a backend that is down.
  #onLeft: (() => void) | undefined;
  #onHurry: (() => void) | undefined;
  #timer: Timer | undefined;
  /** What the timer is for. */
  #wakesAt = Infinity;

  constructor(
    private readonly clock: Clock,
    /** When the wait is over, as things stand. */
    private readonly deadline: () => number,
    private readonly signal?: AbortSignal,
  ) {
    if (signal?.aborted) this.leave();
    else if (signal) this.#listenTo(signal);
    this.look();
  }

  hasLeft(): boolean {
    return this.#hasLeft;
  }

  /** Settles as `work` does, or with undefined if the waiter leaves before. */
  before<T>(work: PromiseLike<T>): Promise<T | undefined> {
    if (this.#hasLeft) return Promise.resolve(undefined);
    return new Promise((resolve, reject) => {
      this.#onLeft = () => {
        resolve(undefined);
      };
      work.then(resolve, reject);
    });
  }

  /** Waits for `delay` ms, until it is hurried, or until the waiter leaves. */
  async pause(delay: number): Promise<void> {
    let timer: Timer | undefined;
    const over = new Promise<void>((resolve) => {
      timer = this.clock.setTimer(resolve, delay, true);
      this.#onHurry = resolve;
    });
    await this.before(over);
    this.#onHurry = undefined;
    if (timer !== undefined) this.clock.clearTimer(timer);
  }

  /** Ends the pause, if there is one. */
  hurry(): void {
    this.#onHurry?.();
  }

  /** Leaves now. */
  leave(): void {
    if (this.#hasLeft) return;
    this.#hasLeft = true;
    this.dispose();
    this.#onLeft?.();
  }

  /** Leaves if the wait is over, and otherwise wakes when it will be. Called again whenever the deadline has moved. */
  look(): void {
    if (this.#hasLeft) return;
    const deadline = this.deadline();
    const remaining = deadline - this.clock.now();
    // Most often it has not moved.
    if (this.#timer !== undefined && deadline === this.#wakesAt && remaining > 0) return;
    this.#disarm();
    this.#wakesAt = deadline;
    if (deadline === Infinity) return;
    if (remaining <= 0) this.leave();
    else {
      const wake = () => {
        this.#timer = undefined;
        this.look();
      };
      this.#timer = this.clock.setTimer(wake, Math.ceil(remaining), true);
    }
  }

  /** Takes down the timer and the listener. */
  dispose(): void {
    this.#disarm();
    if (this.signal) this.#stopListeningTo(this.signal);
  }

  #listenTo(signal: AbortSignal): void {
    const waiting = waitingUnder.get(signal) ?? new Set();
    waitingUnder.set(signal, waiting.add(this));
    // Does nothing when it listens already.
    signal.addEventListener('abort', leaveAll);
  }

  #stopListeningTo(signal: AbortSignal): void {
    const waiting = waitingUnder.get(signal);
    if (waiting?.delete(this) && waiting.size === 0) signal.removeEventListener('abort', leaveAll);
  }

  #disarm(): void {
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }
}
