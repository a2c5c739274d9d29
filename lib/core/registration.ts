import type { Clock, Timer } from '../api/clock.js';
import type { LockBackend } from '../api/lock-provider.js';
import { promised } from './toolkit/promised.js';

// Backends store the name for a day.
const INTERVAL_MS = 3_600_000;
const RETRY_MS = 60_000;

/** Stores this instance's name on a backend so that other processes can show it in lists of locks. */
export class Registration {
  #timer: Timer | undefined;
  #isStopped = false;

  constructor(
    private readonly backend: Pick<LockBackend, 'register'>,
    private readonly clock: Clock,
  ) {}

  /**
   * Stores the name now and every hour, and retries after a minute on failure. Without the name, lists show the
   * instance's id.
   */
  readonly renew = (): void => {
    const { backend } = this;
    if (this.#isStopped || !backend.register) return;
    this.#renewIn(INTERVAL_MS);
    promised(() => backend.register?.() ?? Promise.resolve()).catch(() => {
      this.#renewIn(RETRY_MS);
    });
  };

  #renewIn(delay: number): void {
    if (this.#timer) this.clock.clearTimer(this.#timer);
    this.#timer = this.#isStopped ? undefined : this.clock.setTimer(this.renew, delay);
  }

  stop(): void {
    this.#isStopped = true;
    if (this.#timer) this.clock.clearTimer(this.#timer);
  }
}
