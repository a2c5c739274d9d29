import type { Clock } from './clock.js';

// Both clocks tick at the same rate; /proc/uptime is read in steps of 10 ms. Anything beyond 2 s is a suspension.
const TOLERANCE = 2_000;
// Reading the uptime costs 1.4 µs, as much as a whole uncontended lock, so the fast path looks once a second.
const SAMPLE_EVERY = 1_000;

/**
 * Notices that the machine was suspended (laptop lid, paused VM). The monotonic clock stands still meanwhile, so a
 * deadline computed on it seems far while the backend may have given the lock away.
 */
export class SuspensionDetector {
  readonly #clock: Clock;
  #offset: number;
  #sampledAt: number;
  #count = 0;

  /** @param sampleEvery how old the answer of {@link recent} may be, in ms */
  constructor(
    clock: Clock,
    private readonly sampleEvery = SAMPLE_EVERY,
  ) {
    this.#clock = clock;
    this.#sampledAt = clock.now();
    this.#offset = clock.uptime() - this.#sampledAt;
  }

  /** How many suspensions there were, looking now. */
  observe(): number {
    this.#sampledAt = this.#clock.now();
    const offset = this.#clock.uptime() - this.#sampledAt;
    if (offset - this.#offset > TOLERANCE) {
      this.#count += 1;
      this.#offset = offset;
    }
    return this.#count;
  }

  /** How many suspensions there were, as of `sampleEvery` ms ago (by default a second) or later. */
  recent(now: number): number {
    return now - this.#sampledAt > this.sampleEvery ? this.observe() : this.#count;
  }
}
