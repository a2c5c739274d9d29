import type { Clock, Timer } from '../../api/clock.js';

// At most a hundred in a session timeout.
const PAUSE = 1 / 100;

/** The proofs that a session lives, each a write. Callers that ask at the same time share one. */
export class Heartbeats {
  #sentAt = -Infinity;
  #next: Promise<void> | undefined;
  #pause: { readonly timer: Timer; readonly resume: () => void } | undefined;

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
    if (!this.#pause) return;
    this.clock.clearTimer(this.#pause.timer);
    this.#pause.resume();
  }

  async #beat(): Promise<void> {
    const pause = this.#sentAt + this.timeout() * PAUSE - this.clock.now();
    if (pause > 0) {
      await new Promise<void>((resume) => {
        this.#pause = { timer: this.clock.setTimer(resume, Math.ceil(pause)), resume };
      });
      this.#pause = undefined;
    } else await Promise.resolve();
    this.#next = undefined;
    this.#sentAt = this.clock.now();
    await this.write();
  }
}
