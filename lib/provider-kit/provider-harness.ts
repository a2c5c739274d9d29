import type { LockCapabilities, LockProvider } from '../api/lock-provider.js';
import type { FakeClock } from '../testing/fake-clock.js';

/** Gives the conformance kit access to a provider and its backend. Anything left out here is reported as not run. */
export interface ProviderHarness {
  /**
   * The provider's promises. They are stated here because cases are chosen before a backend is up; a provider whose
   * claims differ fails.
   */
  readonly capabilities: LockCapabilities;

  /**
   * Creates a provider without starting it. All of a harness's providers compete for the same locks, as processes
   * would.
   */
  create(): LockProvider | Promise<LockProvider>;

  /**
   * The short lease, in ms, for cases that wait for a lease to end; for locks tied to a session, the session timeout.
   * Default 3 000: long enough for a busy machine to renew in time, short enough for a quick run.
   */
  readonly lease?: number;

  /** For providers that don't depend on real time: the whole kit runs on this clock, without actually waiting. */
  readonly clock?: FakeClock;

  /** Whether the store runs in the process and uses only the machine's clock, as SQLite does. Default false. */
  readonly embedded?: boolean;

  /** The faults that the harness can cause. */
  readonly faults?: ProviderFaults;

  /** Whether the backends support `records`. Default false. The cases leave records behind, in their own namespaces. */
  readonly records?: boolean;

  /**
   * How many entries the backend still keeps for a namespace, except those meant to stay (token counters, tables).
   * This count must return to its previous value.
   */
  remainingLocks?(namespace: string): Promise<number>;

  /** Time limits for a backend that is slower than most. On a real clock, they're multiplied by ten. */
  readonly bounds?: Partial<ProviderBounds>;

  /** How many cases run at a time on a real clock. Default 8; on a {@link FakeClock}, always one. */
  readonly concurrency?: number;

  /** The seed that a failed run printed, to repeat its random sequences. Default: a different seed each time. */
  readonly seed?: number;
}

/** Faults on demand. */
export interface ProviderFaults {
  /**
   * Takes a lock away from its holder, without any backend knowing, for example by deleting its key or killing its
   * session.
   */
  revoke?(namespace: string, key: string): Promise<unknown>;

  /**
   * Immediately cuts only this provider off from its backend until {@link restore} is called, as a broken network or a
   * crash would.
   */
  cutOff?(provider: LockProvider): Promise<unknown>;

  /**
   * Until {@link restore} is called, nothing reaches this provider or its backend, not even a connection's end, as in a
   * server freeze or network outage.
   */
  silence?(provider: LockProvider): Promise<unknown>;

  /**
   * Until {@link restore} is called, the server refuses only this provider's requests in this namespace, as if a
   * permission were missing. Omit this if the server never refuses anyone.
   */
  refuse?(provider: LockProvider, namespace: string): Promise<unknown>;

  /** Ends {@link cutOff}, {@link silence}, and {@link refuse}. */
  restore?(provider: LockProvider): Promise<unknown>;
}

/** The longest times a backend may take, in ms. */
export interface ProviderBounds {
  /** Time from a release until the next waiter has the lock. */
  readonly handoff: number;
  /** How long the backend may keep a lease after it ends, if the backend measures time in coarse units. */
  readonly expiry: number;
  /** Time from a lease's end until a waiter notices it and acquires the lock. */
  readonly takeOver: number;
  /** Time from a handoff to a dead process's waiter until the next waiter acquires the lock. */
  readonly deadWaiter: number;
  /** Time from a request until it's known that no response will arrive. */
  readonly noAnswer: number;
  /** Time from the end of an outage until the provider works again. */
  readonly recovery: number;
  /** Time from the last release until nothing is left in the backend. */
  readonly cleanUp: number;
}

export const DEFAULT_BOUNDS: ProviderBounds = {
  handoff: 500,
  expiry: 0,
  takeOver: 1_500,
  deadWaiter: 6_000,
  noAnswer: 3_000,
  recovery: 5_000,
  cleanUp: 8_000,
};

export const DEFAULT_LEASE = 3_000;
