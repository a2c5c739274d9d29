import { validUntil } from '../../core/toolkit/validity.js';

/**
 * How long a session is guaranteed to live after an acknowledged write was sent, as a fraction of the timeout.
 *
 * Two thirds, because a follower reports its sessions to the leader only when it responds to the leader's pings, every
 * half tick, and not with the writes that it forwards (3.8: only `LearnerHandler` calls `touch`; `submitLearnerRequest`
 * does not). If it is cut off just after acknowledging a write, its last report is half a tick old, and may have
 * followed a pause in which we sent nothing. We send something every sixth of the timeout, so with sessions of at least
 * two ticks (the shortest that a server grants by default), at most a third of the timeout is lost. The worst case is
 * three ticks, in which two pings pass.
 */
const GUARANTEED = 2 / 3;
/** A pause longer than this fraction of the timeout means that the event loop was blocked or the process stopped. */
const PAUSE = 1 / 4;
/**
 * The fraction of the timeout within which a follower responds to the leader's next ping: half a tick for a two-tick
 * session.
 */
const REPORTED_WITHIN = 1 / 4;

/** Computes how long a session is guaranteed to live, from the requests sent and the writes acknowledged. */
export class SessionLifetime {
  #confirmedAt = -Infinity;
  #sentAt = -Infinity;
  #resumedAt = -Infinity;
  /** When the last request before the latest pause was sent. */
  #pausedAt = -Infinity;
  #asleep = 0;

  constructor(
    /** The granted timeout in ms, or the requested one before the first connection. */
    public timeout: number,
  ) {}

  /** How long a lock stays valid without another write, in ms. */
  get lease(): number {
    return this.timeout * GUARANTEED;
  }

  /** When the guaranteed lifetime of the session and its locks ends. */
  get validUntil(): number {
    return validUntil(this.#confirmedAt, this.lease);
  }

  /**
   * Called for every request.
   *
   * @param asleep how long the machine has slept in total, in ms. The clock used for `at` stops during sleep, so any
   * increase is added.
   */
  sent(at: number, asleep: number): void {
    const slept = Math.max(0, asleep - this.#asleep);
    if (at - this.#sentAt + slept > this.timeout * PAUSE) {
      this.#pausedAt = this.#sentAt - slept;
      this.#confirmedAt -= slept;
      this.#resumedAt = at;
    }
    this.#sentAt = at;
    this.#asleep = asleep;
  }

  /**
   * Called before the first connection attempt, and when a connection or an attempt has ended. The next server opens
   * the session or takes it over through the leader, so once requests can be sent, the leader has seen the session
   * since `at`.
   */
  disconnected(at: number, asleep: number): void {
    this.#sentAt = at;
    this.#asleep = asleep;
    this.#resumedAt = -Infinity;
  }

  /** Called when a write sent at `sentAt` is acknowledged. */
  confirm(sentAt: number): void {
    // Until the follower's next report after a pause, the leader may not have heard from us since before that pause.
    const isReported = sentAt - this.#resumedAt >= this.timeout * REPORTED_WITHIN;
    const known = isReported ? sentAt : Math.min(sentAt, this.#pausedAt + this.timeout - this.lease);
    this.#confirmedAt = Math.max(this.#confirmedAt, known);
  }
}
