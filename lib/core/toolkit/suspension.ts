import type { Clock, Timer } from '../../api/clock.js';

// The time since boot is read in steps of 10 ms to 1 s. Anything beyond 2 s is a suspension.
const TOLERANCE = 2_000;
// The rates of the two clocks may differ by as much: NTP slews one of them by up to 500 ppm for a while, and quartz by 25 ppm, which
// is 2 s in a day. Far below the 1 % by which every lease counts as shorter, so a suspension that hides in it harms no lease.
const DRIFT = 500e-6;
// A look costs up to 11 µs, more than a whole uncontended lock, so an ask looks once a second.
const SAMPLE_EVERY = 1_000;
// How often it looks by itself while somebody is queued. The drift allowed for in 12 hours would hide 23 s of suspension; in 5 s, 3 ms.
const LOOK_WHILE_QUEUED = 5_000;

/**
 * Notices that the machine was suspended (laptop lid, suspended VM). The monotonic clock stops meanwhile, so a
 * deadline computed on it seems far while the backend may have given the lock away.
 *
 * A virtual machine that is paused with both of its clocks does not notice.
 */
export class SuspensionDetector {
  readonly #clock: Clock;
  #offset: number;
  #sampledAt: number;
  #count = 0;
  /** By how many ms the wall clock was ahead of the monotonic clock at the last look. */
  #wallOffset: number;
  #queued = 0;
  #timer: Timer | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sampledAt = clock.now();
    this.#offset = clock.uptime() - this.#sampledAt;
    this.#wallOffset = clock.wallTime() - this.#sampledAt;
  }

  /** How many suspensions there were, looking now. */
  observe(): number {
    const now = this.#clock.now();
    const ahead = this.#clock.uptime() - now - this.#offset;
    const drift = (now - this.#sampledAt) * DRIFT;
    this.#sampledAt = now;
    this.#wallOffset = this.#clock.wallTime() - now;
    if (ahead > TOLERANCE + drift) {
      this.#count += 1;
      this.#offset += ahead;
    } else {
      // Follows the drift and no more, so that short suspensions in a row still add up.
      this.#offset += Math.min(Math.max(ahead, -drift), drift);
    }
    return this.#count;
  }

  /**
   * How many suspensions there were, for a grant that arrived at `now`. Looks only if the wall clock has moved against the monotonic
   * clock: it goes on while the machine is suspended, and reading it costs a hundredth of a look. A wall clock that is set back by
   * the length of the suspension hides it from here; {@link recent} finds it at the next ask that is a second later.
   */
  observeGrant(now: number): number {
    const moved = this.#clock.wallTime() - now - this.#wallOffset;
    return Math.abs(moved) < TOLERANCE / 2 ? this.#count : this.observe();
  }

  /** How many suspensions were seen by the last look, which is at most a second old on the monotonic clock. */
  recent(now: number): number {
    return now - this.#sampledAt > SAMPLE_EVERY ? this.observe() : this.#count;
  }

  /**
   * One caller more (or, with -1, one less) is queued. Nothing else may look between the ask of a waiter and its grant, which can
   * come a day later with a lease of seconds; so it looks regularly as long as somebody is queued.
   */
  queued(change: 1 | -1): void {
    this.#queued += change;
    if (this.#queued > 0) this.#timer ??= this.#clock.setTimer(this.#lookAgain, LOOK_WHILE_QUEUED);
    else if (this.#timer !== undefined) {
      this.#clock.clearTimer(this.#timer);
      this.#timer = undefined;
    }
  }

  readonly #lookAgain = (): void => {
    this.observe();
    this.#timer = this.#clock.setTimer(this.#lookAgain, LOOK_WHILE_QUEUED);
  };
}
