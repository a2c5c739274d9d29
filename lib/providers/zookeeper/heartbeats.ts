import type { Clock } from '../../api/clock.js';
import { pause } from '../../core/toolkit/timing.js';

// At most a hundred heartbeats per session timeout.
const MIN_INTERVAL = 1 / 100;

/** Writes that prove the session is alive. Concurrent callers share one write. */
export class Heartbeats {
  #sentAt = -Infinity;
  #next: Promise<number> | undefined;
  readonly #ending = new AbortController();

  /** @param timeout returns the current session timeout */
  constructor(
    private readonly clock: Clock,
    private readonly timeout: () => number,
    private readonly write: () => Promise<number>,
  ) {}

  /** Sends a new write, or joins one that is about to be sent. Resolves to the time of that write. */
  next(): Promise<number> {
    this.#next ??= this.#beat();
    return this.#next;
  }

  /** Cuts short the delay before a heartbeat. */
  end(): void {
    this.#ending.abort();
  }

  async #beat(): Promise<number> {
    const delay = this.#sentAt + this.timeout() * MIN_INTERVAL - this.clock.now();
    if (delay > 0) await pause(this.clock, Math.ceil(delay), this.#ending.signal);
    else await Promise.resolve();
    this.#next = undefined;
    this.#sentAt = this.clock.now();
    return this.write();
  }
}
