import type { LockCapabilities, LockProvider } from '../api/lock-provider.js';
import type { FakeClock } from '../testing/fake-clock.js';

/** How the conformance kit gets at a provider and its backend. What is left out here is reported as not run. */
export interface ProviderHarness {
  /**
   * The promises of the provider. Written down here because cases are chosen before a backend is up; a provider that
   * claims anything else fails.
   */
  readonly capabilities: LockCapabilities;

  /** A new provider that was not started. All of one harness compete for the same locks, as processes would. */
  create(): LockProvider | Promise<LockProvider>;

  /**
   * The short lease for cases that wait for its end, in ms; for locks that live with a session, the session's time.
   * Default 3 000: long enough for a busy machine to renew in time, short enough for a quick run.
   */
  readonly lease?: number;

  /** For providers that don't depend on real time: the whole kit runs on this clock, without actually waiting. */
  readonly clock?: FakeClock;

  /** The store works inside of the process and has no clock but that of the machine, as SQLite. Default false. */
  readonly embedded?: boolean;

  /** The faults that the harness can cause. */
  readonly faults?: ProviderFaults;

  /** Whether its backends have `records`. Default false. The cases leave records behind, in namespaces of their own. */
  readonly records?: boolean;

  /**
   * How much the backend still keeps for a namespace, apart from what is meant to stay (token counters, tables).
   * Must come down to what it was before.
   */
  remainingLocks?(namespace: string): Promise<number>;

  /** How quick the backend has to be, where it is not as quick as most. On a real clock ten times as much is allowed. */
  readonly bounds?: Partial<ProviderBounds>;

  /** How many cases run at a time on a real clock. Default 8; on a {@link FakeClock} always one. */
  readonly concurrency?: number;

  /** Repeats the random sequences of a failed run, which prints its seed. Default: another one each time. */
  readonly seed?: number;
}

/** Accidents, made to order. */
export interface ProviderFaults {
  /** Takes a lock away from its holder, without the knowledge of any backend: delete its key, kill its session. */
  revoke?(namespace: string, key: string): Promise<unknown>;

  /** Cuts this one provider off from its backend, at once and until {@link restore}: as a broken network, or a crash. */
  cutOff?(provider: LockProvider): Promise<unknown>;

  /**
   * From now on nothing reaches this one provider or its backend, not even the end of a connection, until {@link restore}: like a frozen
   * server or a network that is down.
   */
  silence?(provider: LockProvider): Promise<unknown>;

  /**
   * From now on the server refuses what this one provider asks in this namespace, as without a permission, until {@link restore}. Left out where the
   * server refuses nobody.
   */
  refuse?(provider: LockProvider, namespace: string): Promise<unknown>;

  /** Ends {@link cutOff}, {@link silence} and {@link refuse}. */
  restore?(provider: LockProvider): Promise<unknown>;
}

/** The longest times a backend may take, in ms. */
export interface ProviderBounds {
  /** From a release until the next waiter has the lock. */
  readonly handoff: number;
  /** From the end of a lease until the backend has let go of it, where it counts in coarse units. */
  readonly expiry: number;
  /** From the end of a lease until a waiter has noticed it and has the lock. */
  readonly takeOver: number;
  /** From a handoff to a waiter whose process is gone until the waiter behind it has the lock. */
  readonly deadWaiter: number;
  /** From an operation until it is known that there will be no answer. */
  readonly noAnswer: number;
  /** From the end of an outage until the provider works again. */
  readonly recovery: number;
  /** From the last release until nothing is left in the backend. */
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
