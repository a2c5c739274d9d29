import { validUntil } from '../../core/toolkit/validity.js';

/**
 * How long after an acknowledged write was sent the session is guaranteed to live: two thirds of its timeout.
 *
 * Not all of it. A follower reports its sessions to its leader only with its answers to the leader's pings, each half tick, and not
 * with the writes that it forwards (3.8: only `LearnerHandler` calls `touch`, `submitLearnerRequest` does not). If it is cut off just
 * after a write was acknowledged, it has reported nothing since the last ping, half a tick ago, and that one may have followed a
 * pause in which we sent nothing. We send something each sixth of the timeout, so with sessions of two ticks or more (the least
 * that a server grants by itself) at most a third of the timeout is lost: at three ticks, where two pings go by.
 */
const GUARANTEED = 2 / 3;
/** A longer pause, in parts of the timeout, is none of our own: the event loop was blocked, or the process was stopped. */
const PAUSE = 1 / 4;
/** By then a follower has answered the next ping of its leader, in parts of the timeout: half a tick, of two ticks. */
const REPORTED_WITHIN = 1 / 4;

/** Until when a session is guaranteed to live, computed from the requests that were sent and the writes that were acknowledged. */
export class SessionLifetime {
  #confirmedAt = -Infinity;
  #sentAt = -Infinity;
  #resumedAt = -Infinity;
  /** When the last request before the pause was sent that ended at `#resumedAt`. */
  #pausedAt = -Infinity;
  #asleep = 0;

  /** @param timeout the timeout of the session, in ms */
  constructor(public timeout: number) {}

  /** How long a lock is valid without another write, in ms. */
  get lease(): number {
    return this.timeout * GUARANTEED;
  }

  get validUntil(): number {
    return validUntil(this.#confirmedAt, this.lease);
  }

  /**
   * A request of any kind was sent.
   *
   * @param asleep for how many ms the machine has slept: the clock of `at` stops meanwhile, so the growth counts
   */
  sent(at: number, asleep: number): void {
    const slept = Math.max(0, asleep - this.#asleep);
    if (at - this.#sentAt + slept > this.timeout * PAUSE) {
      this.#pausedAt = this.#sentAt - slept;
      this.#resumedAt = at;
    }
    this.#sentAt = at;
    this.#asleep = asleep;
  }

  /** The server has opened the session, or taken it over from another server, which goes through the leader: since `at` at the latest. */
  connected(at: number, asleep: number): void {
    this.#sentAt = at;
    this.#asleep = asleep;
    this.#resumedAt = -Infinity;
  }

  /** A write that was sent then is acknowledged. */
  confirm(sentAt: number): void {
    // After a pause, the leader may have last heard of us before it, until the next ping.
    const isReported = sentAt - this.#resumedAt >= this.timeout * REPORTED_WITHIN;
    const known = isReported ? sentAt : Math.min(sentAt, this.#pausedAt + this.timeout - this.lease);
    this.#confirmedAt = Math.max(this.#confirmedAt, known);
  }
}
