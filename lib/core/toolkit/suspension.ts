import type { Clock, Timer } from '../../api/clock.js';

// The uptime has a resolution of 10 ms to 1 s, depending on the system. A gap of more than 2 s counts as a suspension.
const TOLERANCE_MS = 2_000;
// How much the two clocks' rates may differ: NTP slews one of them by up to 500 ppm for a while, and quartz drifts by
// 25 ppm, which is 2 s a day. Leases are treated as 1 % shorter, so a suspension short enough to pass for drift does no
// harm.
const DRIFT = 500e-6;
// Reading the clocks costs up to 11 µs, more than an entire uncontended lock, so requests read them at most once a
// second.
const SAMPLE_EVERY_MS = 1_000;
// How often a timer reads the clocks while a request is queued. Over 12 hours, the allowed drift could hide a 23 s
// suspension; over 5 s, only 3 ms.
const SAMPLE_WHILE_QUEUED_MS = 5_000;

/**
 * Detects machine suspensions (a closed laptop lid, a suspended VM). The monotonic clock stops during a suspension, so
 * a deadline may seem far away even though the backend has already granted the lock to another process.
 *
 * A VM suspension that stops both clocks cannot be detected.
 */
export class SuspensionDetector {
  readonly #clock: Clock;
  #offset: number;
  #sampledAt: number;
  #count = 0;
  /** How far the wall clock was ahead of the monotonic clock at the last sample, in ms. */
  #wallOffset: number;
  #queued = 0;
  #timer: Timer | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sampledAt = clock.now();
    this.#offset = clock.uptime() - this.#sampledAt;
    this.#wallOffset = clock.wallTime() - this.#sampledAt;
  }

  /** Reads the clocks and returns the number of suspensions so far. */
  observe(): number {
    const now = this.#clock.now();
    const ahead = this.#clock.uptime() - now - this.#offset;
    const drift = (now - this.#sampledAt) * DRIFT;
    this.#sampledAt = now;
    this.#wallOffset = this.#clock.wallTime() - now;
    if (ahead > TOLERANCE_MS + drift) {
      this.#count += 1;
      this.#offset += ahead;
    } else {
      // The offset is adjusted only by the allowed drift, so several short suspensions still add up.
      this.#offset += Math.min(Math.max(ahead, -drift), drift);
    }
    return this.#count;
  }

  /**
   * The number of suspensions as of a grant that arrived at `now`. Calls {@link observe} only if the wall clock has
   * moved relative to the monotonic clock. The wall clock keeps running during a suspension, and reading it alone costs
   * a hundredth as much. If it was set back by exactly the length of the suspension, {@link recent} still finds the
   * suspension on the next request a second or more later.
   */
  observeGrant(now: number): number {
    const moved = this.#clock.wallTime() - now - this.#wallOffset;
    return Math.abs(moved) < TOLERANCE_MS / 2 ? this.#count : this.observe();
  }

  /** The number of suspensions as of the last sample, which is at most a second old by the monotonic clock. */
  recent(now: number): number {
    return now - this.#sampledAt > SAMPLE_EVERY_MS ? this.observe() : this.#count;
  }

  /**
   * Notes that a request joined (1) or left (-1) a backend's queue. While any request is queued, a timer samples the
   * clocks: otherwise, nothing might do so between a request and its grant, which can arrive a day later with a lease
   * of only seconds.
   */
  queued(change: 1 | -1): void {
    this.#queued += change;
    if (this.#queued > 0) this.#timer ??= this.#clock.setTimer(this.#sampleAgain, SAMPLE_WHILE_QUEUED_MS);
    else if (this.#timer !== undefined) {
      this.#clock.clearTimer(this.#timer);
      this.#timer = undefined;
    }
  }

  readonly #sampleAgain = (): void => {
    this.observe();
    this.#timer = this.#clock.setTimer(this.#sampleAgain, SAMPLE_WHILE_QUEUED_MS);
  };
}
