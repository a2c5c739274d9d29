import type { Clock, Timer } from '../../api/clock.js';

/** One pause of one caller. */
export interface RetryPause {
  /** Resolves when the pause is over. */
  readonly over: Promise<void>;
  /** Ends it, if it is not over. */
  end(): void;
}

interface Pausing {
  readonly since: number;
  readonly end: () => void;
}

/** The callers of one provider that were not answered and pause before they ask again. */
export class RetryPauses {
  /** By key. */
  readonly #pausing = new Map<string, Set<Pausing>>();

  constructor(private readonly clock: Clock) {}

  /** @param since when the caller came, on the monotonic clock */
  begin(key: string, since: number, delay: number): RetryPause {
    const pausing = this.#pausing.get(key) ?? new Set();
    this.#pausing.set(key, pausing);
    let timer: Timer | undefined;
    let end = (): void => undefined;
    const over = new Promise<void>((resolve) => {
      end = () => {
        if (timer !== undefined) this.clock.clearTimer(timer);
        pausing.delete(one);
        if (pausing.size === 0 && this.#pausing.get(key) === pausing) this.#pausing.delete(key);
        resolve();
      };
      timer = this.clock.setTimer(end, delay, true);
    });
    const one = { since, end };
    pausing.add(one);
    return { over, end };
  }

  /**
   * The backend answers for the key: the callers that pause before asking for it ask now, first come, first served. Their pauses are of
   * all lengths up to a second, in which later callers would be served.
   */
  hurry(key: string): void {
    const pausing = this.#pausing.get(key);
    if (!pausing) return;
    for (const { end } of [...pausing].sort((one, other) => one.since - other.since)) end();
  }
}
