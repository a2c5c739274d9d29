import { type Clock } from '../../api/clock.js';

/** When an engine counts as failed, and as well again; all times in ms. */
export interface HealthTerms {
  /** After how many failures in a row it is down. */
  readonly failures: number;
  /** How often it is probed. */
  readonly probeEvery: number;
  /** How long a probe may take, and for how long at least it must fail to be down. */
  readonly probeTimeout: number;
  /** For how long it must answer without a failure after it was down. */
  readonly stableFor: number;
}

/**
 * - `up`: answers.
 * - `down`: has failed several times in a row.
 * - `recovering`: answers again, but not for long enough yet to be trusted.
 */
export type EngineState = 'up' | 'down' | 'recovering';

/** A circuit breaker: whether one engine works, learned from what came of each call. */
export class EngineHealth {
  #state: EngineState = 'up';
  #failures = 0;
  #failingSince = 0;
  #recoveringSince = 0;

  constructor(
    private readonly terms: HealthTerms,
    private readonly clock: Clock,
    private readonly onChange: (state: EngineState) => void,
  ) {}

  get state(): EngineState {
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
    else if (this.#state === 'up' && this.#failures >= this.terms.failures) {
      // One broken connection fails all that is under way on it at the same moment.
      if (now - this.#failingSince >= this.terms.probeTimeout) this.#become('down');
    }
  }

  #become(state: EngineState): void {
    this.#state = state;
    this.onChange(state);
  }
}
