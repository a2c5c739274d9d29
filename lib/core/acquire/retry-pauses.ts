import type { Clock, Timer } from '../../api/clock.js';

/** One pause of one caller. */
export interface RetryPause {
  /** Resolves when the pause is over. */
  readonly over: Promise<void>;
  /** Ends it, if it is not over. */
  end(): void;
}

interface Pausing {
  readonly key: string;
  readonly since: number;
  readonly end: () => void;
}

/** The callers of one provider that were not answered and pause before they ask again. */
export class RetryPauses {
  readonly #pausing = new Set<Pausing>();

  constructor(private readonly clock: Clock) {}

  /** @param since when the caller came, on the monotonic clock */
  begin(key: string, since: number, delay: number): RetryPause {
    let timer: Timer | undefined;
    let end = (): void => undefined;
    const over = new Promise<void>((resolve) => {
      end = () => {
        if (timer !== undefined) this.clock.clearTimer(timer);
        this.#pausing.delete(pausing);
        resolve();
      };
      timer = this.clock.setTimer(end, delay, true);
    });
    const pausing = { key, since, end };
    this.#pausing.add(pausing);
    return { over, end };
  }

  /**
   * The backend answers for the key: the callers that pause before asking for it ask now, first come, first served. Their pauses are of
   * all lengths up to a second, in which later callers would be served.
   */
  hurry(key: string): void {
    if (this.#pausing.size === 0) return;
    const late = Array.from(this.#pausing).filter((pausing) => pausing.key === key);
    late.sort((one, other) => one.since - other.since);
    for (const pausing of late) pausing.end();
  }
}
