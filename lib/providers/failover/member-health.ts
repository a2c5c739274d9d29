import type { ProviderState } from '../../api/failover-state.js';
import type { Clock } from '../../api/clock.js';

/** After how many failures in a row a member is down. */
const FAILURES = 3;

/** For how long a member must fail or answer until that counts, in ms. */
export interface HealthThresholds {
  /** Down when it has been silent for so long. */
  readonly failingFor: number;
  /** Down when it has granted nothing for so long, though it renews what it has granted. */
  readonly refusingFor: number;
  /** Up again when it has granted for so long. */
  readonly stableFor: number;
}

/**
 * A circuit breaker: whether one member works, learned from the outcome of each call.
 *
 * A member that renews and refuses new locks (a Redis out of memory, a database that has become read-only) is of no use to new callers,
 * so it is down as well. That takes longer than silence, because a switch ends the locks that it still renews.
 */
export class MemberHealth {
  #state: ProviderState = 'up';
  /** Since the last answer. */
  readonly #failures = new Streak();
  /** Since the last grant. */
  readonly #refusals = new Streak();
  #recoveringSince = 0;

  constructor(
    private readonly thresholds: HealthThresholds,
    private readonly clock: Clock,
    private readonly onChange: (state: ProviderState) => void,
  ) {}

  get state(): ProviderState {
    return this.#state;
  }

  /** Whether the last call was not answered. */
  get isFailing(): boolean {
    return this.#failures.count > 0;
  }

  /** The member has granted a lock, or answered that it is busy. */
  succeeded(): void {
    this.#failures.end();
    this.#refusals.end();
    if (this.#state === 'up') return;
    const now = this.clock.now();
    if (this.#state === 'down') {
      this.#recoveringSince = now;
      this.#become('recovering');
    } else if (now - this.#recoveringSince >= this.thresholds.stableFor) this.#become('up');
  }

  /** The member has renewed a lock: no sign that it grants new ones. */
  renewed(): void {
    this.#failures.end();
  }

  /** The member has not answered. */
  failed(): void {
    const now = this.clock.now();
    this.#failures.add(now);
    this.#judge(now);
  }

  /** The member has not granted a lock that was asked for, whatever the reason. */
  refused(): void {
    const now = this.clock.now();
    this.#refusals.add(now);
    this.#judge(now);
  }

  #judge(now: number): void {
    const { failingFor, refusingFor } = this.thresholds;
    const isDown = () => this.#failures.lasts(failingFor, now) || this.#refusals.lasts(refusingFor, now);
    if (this.#state === 'recovering' || (this.#state === 'up' && isDown())) this.#become('down');
  }

  #become(state: ProviderState): void {
    this.#state = state;
    this.onChange(state);
  }
}

/** Failures in a row. */
class Streak {
  count = 0;
  #since = 0;

  add(now: number): void {
    if (this.count === 0) this.#since = now;
    this.count += 1;
  }

  end(): void {
    this.count = 0;
  }

  /** There were several, over so many ms: one broken connection fails everything in flight on it at the same moment. */
  lasts(duration: number, now: number): boolean {
    return this.count >= FAILURES && now - this.#since >= duration;
  }
}
