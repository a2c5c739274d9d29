import type { Clock } from '../../engine/lock-provider.js';

/** Who waits for a connection, for `wait` ms or until the signal aborts. */
export interface Patron {
  readonly wait: number;
  readonly signal?: AbortSignal;
}

/** A limited number of connections, given out in the order in which they were asked for. */
export class ConnectionSlots {
  readonly #waiting = new Set<() => void>();

  constructor(
    private readonly clock: Clock,
    private available: number,
  ) {}

  /** Takes one. Answers false when none was free in the time of who asks. */
  take(patron: Patron): Promise<boolean> {
    if (this.available > 0) {
      this.available -= 1;
      return Promise.resolve(true);
    }
    const { wait } = patron;
    if (wait <= 0) return Promise.resolve(false);
    // A signal is made when it is read.
    const left = patron.signal;
    if (left?.aborted) return Promise.resolve(false);
    return new Promise((resolve) => {
      const settle = (taken: boolean) => {
        this.#waiting.delete(serve);
        if (timer) this.clock.clearTimer(timer);
        left?.removeEventListener('abort', leave);
        resolve(taken);
      };
      const serve = () => {
        settle(true);
      };
      const leave = () => {
        settle(false);
      };
      const timer = wait < LONGEST_TIMER ? this.clock.setTimer(leave, wait) : undefined;
      left?.addEventListener('abort', leave, { once: true });
      this.#waiting.add(serve);
    });
  }

  free(): void {
    const [next] = this.#waiting;
    if (next) next();
    else this.available += 1;
  }
}

// A longer one fires at once.
const LONGEST_TIMER = 2 ** 31;
