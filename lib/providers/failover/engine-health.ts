import {
  type AcquireRequest,
  type Clock,
  type Member,
  type ProviderContext,
  type Timer,
} from '../../engine/lock-provider.js';
import { LockError, LockUnavailableError } from '../../lock/errors.js';

/** When an engine counts as failed, and as well again; all times in ms. */
export interface HealthTerms {
  /** After how many failures in a row it is down. */
  readonly failures: number;
  /** How often it is probed. */
  readonly probeEvery: number;
  /** How long a probe may take. */
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

// One for the fleet: a SQL engine would keep a row for each. That somebody else holds it is an answer too.
const PROBE_KEY = 'failover:probe';
const PROBE_LEASE = 1_000;

/**
 * A circuit breaker on one engine: learns from every real call and, since idle engines and standbys see none, from a
 * probe that takes and gives back a lock. Busy is an answer, so it counts as health.
 */
export class EngineHealth {
  #state: EngineState = 'up';
  #failures = 0;
  #recoveringSince = 0;
  #timer: Timer | undefined;
  #stopped = false;

  constructor(
    readonly name: string,
    private readonly member: Member,
    private readonly terms: HealthTerms,
    private readonly context: ProviderContext,
    private readonly onChange: (state: EngineState) => void,
  ) {}

  get state(): EngineState {
    return this.#state;
  }

  start(): void {
    this.#schedule();
  }

  stop(): void {
    this.#stopped = true;
    if (this.#timer) this.context.clock.clearTimer(this.#timer);
  }

  succeeded(): void {
    this.#failures = 0;
    if (this.#state === 'up') return;
    const now = this.context.clock.now();
    if (this.#state === 'down') {
      this.#recoveringSince = now;
      this.#become('recovering');
    } else if (now - this.#recoveringSince >= this.terms.stableFor) this.#become('up');
  }

  /** Counts the error if it says that the engine does not answer. */
  failed(error: unknown): void {
    if (!(LockError.is(error) && error.code === UNAVAILABLE)) return;
    this.#failures += 1;
    if (this.#state === 'recovering' || (this.#state === 'up' && this.#failures >= this.terms.failures)) {
      this.#become('down');
    }
  }

  #become(state: EngineState): void {
    this.#state = state;
    this.onChange(state);
  }

  #schedule(): void {
    if (this.#stopped) return;
    // Not all processes at once.
    const delay = this.terms.probeEvery * (0.75 + this.context.random.fraction() / 2);
    this.#timer = this.context.clock.setTimer(() => {
      void this.#probe();
    }, delay);
  }

  async #probe(): Promise<void> {
    const { clock, random } = this.context;
    const departure = new AbortController();
    const probe: AcquireRequest = {
      key: PROBE_KEY,
      holder: random.id(),
      mode: 'exclusive',
      lease: PROBE_LEASE,
      renew: false,
      minHold: 0,
      wait: 0,
      options: {},
      signal: departure.signal,
    };
    try {
      const granted = this.member.acquire(probe);
      await inTime(granted, this.terms.probeTimeout, clock);
      this.succeeded();
    } catch (error) {
      departure.abort();
      this.failed(error);
    }
    // Also what was not granted in time may be granted late.
    await Promise.resolve(this.member.release(probe, { keepFor: 0, failed: false })).catch(() => undefined);
    this.#schedule();
  }
}

const UNAVAILABLE: LockUnavailableError['code'] = 'LOCK_UNAVAILABLE';

/** @throws LockUnavailableError when there is no answer after `patience` ms */
export async function inTime<T>(answer: T | PromiseLike<T>, patience: number, clock: Clock): Promise<T> {
  let timer: Timer | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = clock.setTimer(() => {
      reject(new LockUnavailableError(`There was no answer within ${patience} ms.`));
    }, patience);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    if (timer) clock.clearTimer(timer);
  }
}
