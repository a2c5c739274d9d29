import type { ProviderState } from '../../api/failover-state.js';
import type { Clock } from '../../api/clock.js';

/** How many consecutive failures it takes to consider a member down. */
const FAILURES = 3;

/** How long a member must keep failing or working before its state changes, in ms. */
export interface HealthThresholds {
  /** Down after this long without a response. */
  readonly failingFor: number;
  /** Down after this long without granting a lock, even if it still renews. */
  readonly refusingFor: number;
  /** Up again after it has worked for this long. */
  readonly stableFor: number;
}

/**
 * A circuit breaker that tracks a member's health based on the outcome of each call.
 *
 * A member that renews locks but rejects new ones (Redis out of memory, a read-only database) is useless for new
 * callers, so it counts as down too. That takes longer than for a silent member, because a switch ends the locks that
 * the member still renews.
 */
export class MemberHealth {
  #state: ProviderState = 'up';
  /** Failures since the last response. */
  readonly #failures = new Streak();
  /** Refusals since the last grant. */
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

  /** Whether the last call got no response. */
  get isFailing(): boolean {
    return this.#failures.count > 0;
  }

  /** The member granted a lock or reported it as busy. */
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

  /** The member renewed a lock, which doesn't show that it grants new ones. */
  renewed(): void {
    this.#failures.end();
  }

  /** The member didn't respond. */
  failed(): void {
    const now = this.clock.now();
    this.#failures.add(now);
    this.#judge(now);
  }

  /** The member did not grant a lock, whatever the reason. */
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

/** Consecutive failures. */
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

  /**
   * Whether several failures occurred over this many ms. One burst isn't enough: a broken connection makes every call
   * in flight fail at once.
   */
  lasts(duration: number, now: number): boolean {
    return this.count >= FAILURES && now - this.#since >= duration;
  }
}
