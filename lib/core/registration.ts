import type { Clock, Timer } from '../api/clock.js';
import type { LockBackend } from '../api/lock-provider.js';

// A backend keeps the record for a day.
const INTERVAL = 3_600_000;
const RETRY = 60_000;

/** Keeps the name of this instance recorded at a backend, for those who list its locks. */
export class Registration {
  #timer: Timer | undefined;
  #isStopped = false;

  constructor(
    private readonly backend: Pick<LockBackend, 'register'>,
    private readonly clock: Clock,
  ) {}

  /** Records it now, and again each hour; after a failure in a minute. Meanwhile a list shows the id instead of the name. */
  readonly renew = (): void => {
    if (this.#isStopped || !this.backend.register) return;
    this.#renewIn(INTERVAL);
    this.backend.register().catch(() => {
      this.#renewIn(RETRY);
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
