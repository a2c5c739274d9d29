import type { Clock, Timer } from '../api/clock.js';
import type { LockBackend } from '../api/lock-provider.js';

// A backend keeps the record for a day, so a few of these may fail.
const INTERVAL = 3_600_000;

/** Keeps the name of this instance recorded at a backend, for those who list its locks. */
export class Registration {
  #timer: Timer | undefined;
  #hasEnded = false;

  constructor(
    private readonly backend: Pick<LockBackend, 'register'>,
    private readonly clock: Clock,
  ) {}

  /** Records it now, and again each hour. */
  readonly renew = (): void => {
    if (this.#hasEnded || !this.backend.register) return;
    if (this.#timer) this.clock.clearTimer(this.#timer);
    this.#timer = this.clock.setTimer(this.renew, INTERVAL);
    // A list shows the id instead of the name.
    this.backend.register().catch(() => undefined);
  };

  end(): void {
    this.#hasEnded = true;
    if (this.#timer) this.clock.clearTimer(this.#timer);
  }
}
