import { validUntil } from '../../core/toolkit/validity.js';

/**
 * How long after an acknowledged write was sent the session surely lives: two thirds of its time-out.
 *
 * Not all of it. A follower tells its leader of its sessions only with its answers to the leader's pings, each half tick, and not
 * with the writes that it forwards (3.8: `LearnerHandler` alone calls `touch`, `submitLearnerRequest` does not). Cut off just
 * after a write was acknowledged, it has told of nothing since the last ping, half a tick ago, and that one may have followed a
 * pause in which we sent nothing. We send something each sixth of the time-out, so with sessions of two ticks or more (the least
 * that a server grants by itself) a third of the time-out is the most that goes off: at three ticks, where two pings go by.
 */
const SURE_LIFE = 2 / 3;
/** A longer pause, in parts of the time-out, is no pause of ours: the event loop was blocked, or the process was stopped. */
const PAUSE = 1 / 4;
/** By then a follower has answered the next ping of its leader, in parts of the time-out: half a tick, of two ticks. */
const TOLD_WITHIN = 1 / 4;

/** Until when a session surely lives, by what was sent and what was acknowledged. */
export class SureLife {
  #confirmedAt = -Infinity;
  #sentAt = -Infinity;
  #resumedAt = -Infinity;
  /** When something was sent last before the pause that ended at `#resumedAt`. */
  #pausedAt = -Infinity;
  #asleep = 0;

  /** @param timeout the time-out of the session, in ms. */
  constructor(public timeout: number) {}

  /** How long a lock is sure without another write, in ms. */
  get lease(): number {
    return this.timeout * SURE_LIFE;
  }

  get validUntil(): number {
    return validUntil(this.#confirmedAt, this.lease);
  }

  /** Something was sent, whatever it was. Of `asleep`, the ms for which the machine has slept, the growth counts: `at` stands still then. */
  sent(at: number, asleep: number): void {
    const slept = Math.max(0, asleep - this.#asleep);
    if (at - this.#sentAt + slept > this.timeout * PAUSE) {
      this.#pausedAt = this.#sentAt - slept;
      this.#resumedAt = at;
    }
    this.#sentAt = at;
    this.#asleep = asleep;
  }

  /** The server has opened the session, or taken it over from another one, which goes through the leader: since `at` at the latest. */
  connected(at: number, asleep: number): void {
    this.#sentAt = at;
    this.#asleep = asleep;
    this.#resumedAt = -Infinity;
  }

  /** A write that was sent then is acknowledged. */
  confirm(sentAt: number): void {
    // After a pause, what the leader knows of us may be as old as that, until the next ping.
    const isTold = sentAt - this.#resumedAt >= this.timeout * TOLD_WITHIN;
    const known = isTold ? sentAt : Math.min(sentAt, this.#pausedAt + this.timeout - this.lease);
    this.#confirmedAt = Math.max(this.#confirmedAt, known);
  }
}
