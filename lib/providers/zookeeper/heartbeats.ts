import type { Clock } from '../../api/clock.js';
import { pause } from '../../core/toolkit/timing.js';

// At most a hundred in a session timeout.
const PAUSE = 1 / 100;

/** The proofs that a session lives, each a write. Callers that ask at the same time share one. */
export class Heartbeats {
  #sentAt = -Infinity;
  #next: Promise<number> | undefined;
  readonly #ending = new AbortController();

  /** @param timeout that of the session, in ms, as it is now */
  constructor(
    private readonly clock: Clock,
    private readonly timeout: () => number,
    private readonly write: () => Promise<number>,
  ) {}

  /** The outcome of a write that is sent after this call: when it was. */
  next(): Promise<number> {
    this.#next ??= this.#beat();
    return this.#next;
  }

  /** Ends a pause: a heartbeat that is due is sent now. */
  end(): void {
    this.#ending.abort();
  }

  async #beat(): Promise<number> {
    const delay = this.#sentAt + this.timeout() * PAUSE - this.clock.now();
    if (delay > 0) await pause(this.clock, Math.ceil(delay), this.#ending.signal);
    else await Promise.resolve();
    this.#next = undefined;
    this.#sentAt = this.clock.now();
    return this.write();
  }
}
