import type { Clock } from '../../api/clock.js';
import { pause } from '../../core/toolkit/timing.js';

// At most a hundred in a session timeout.
const PAUSE = 1 / 100;

/** The proofs that a session lives, each a write. Callers that ask at the same time share one. */
export class Heartbeats {
  #sentAt = -Infinity;
  #next: Promise<void> | undefined;
  readonly #ending = new AbortController();

  /** @param timeout that of the session, in ms, as it is now */
  constructor(
    private readonly clock: Clock,
    private readonly timeout: () => number,
    private readonly write: () => Promise<void>,
  ) {}

  /** The outcome of a write that is sent after this call. */
  next(): Promise<void> {
    this.#next ??= this.#beat();
    return this.#next;
  }

  /** Ends a pause: a heartbeat that is due is sent now. */
  end(): void {
    this.#ending.abort();
  }

  async #beat(): Promise<void> {
    const delay = this.#sentAt + this.timeout() * PAUSE - this.clock.now();
    if (delay > 0) await pause(this.clock, Math.ceil(delay), this.#ending.signal);
    else await Promise.resolve();
    this.#next = undefined;
    this.#sentAt = this.clock.now();
    await this.write();
  }
}
