import type { Clock } from '../../api/clock.js';

/**
 * - `up`: it answers.
 * - `down`: it has failed several times in a row.
 * - `recovering`: it answers again, but not yet for long enough to be preferred.
 */
export type ProviderState = 'up' | 'down' | 'recovering';

/** After how many failures in a row a member is down. */
const FAILURES = 3;

/** A circuit breaker: whether one member works, learned from the outcome of each call. */
export class MemberHealth {
  #state: ProviderState = 'up';
  #failures = 0;
  #failingSince = 0;
  #recoveringSince = 0;

  constructor(
    /** For how long it must fail at least to be down, and answer to be up again; in ms. */
    private readonly terms: { readonly failingFor: number; readonly stableFor: number },
    private readonly clock: Clock,
    private readonly onChange: (state: ProviderState) => void,
  ) {}

  get state(): ProviderState {
    return this.#state;
  }

  /** Whether the last call has failed. */
  get isFailing(): boolean {
    return this.#failures > 0;
  }

  succeeded(): void {
    this.#failures = 0;
    if (this.#state === 'up') return;
    const now = this.clock.now();
    if (this.#state === 'down') {
      this.#recoveringSince = now;
      this.#become('recovering');
    } else if (now - this.#recoveringSince >= this.terms.stableFor) this.#become('up');
  }

  failed(): void {
    const now = this.clock.now();
    if (this.#failures === 0) this.#failingSince = now;
    this.#failures += 1;
    if (this.#state === 'recovering') this.#become('down');
    else if (this.#state === 'up' && this.#failures >= FAILURES) {
      // One broken connection fails everything in flight on it at the same moment.
      if (now - this.#failingSince >= this.terms.failingFor) this.#become('down');
    }
  }

  #become(state: ProviderState): void {
    this.#state = state;
    this.onChange(state);
  }
}
