import type { Clock } from '../../engine/lock-provider.js';

/** A limited number of connections, given out in the order in which they were asked for. */
export class ConnectionSlots {
  readonly #waiting = new Set<() => void>();

  constructor(
    private readonly clock: Clock,
    private available: number,
  ) {}

  /** Takes one, waiting for `wait` ms. Answers false when none was free in that time, or `left` aborted. */
  take(wait: number, left: AbortSignal | undefined): Promise<boolean> {
    if (this.available > 0) {
      this.available -= 1;
      return Promise.resolve(true);
    }
    if (wait <= 0 || left?.aborted) return Promise.resolve(false);
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
