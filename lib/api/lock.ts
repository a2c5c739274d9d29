import type { Duration } from './duration.js';
import type { LockMode } from './lock-mode.js';

/** How a lock is released by {@link Lock.release}. */
export interface ReleaseSettings {
  /**
   * Whether what was written in the transaction of a row lock is rolled back; the locks of other providers have none. Default: whether a task of
   * {@link Lock.run} has failed. A nested entry leaves the decision to the outermost one.
   */
  readonly rollback?: boolean;
}

/**
 * How a release ended.
 *
 * - `released`: the backend confirmed it.
 * - `nested`: this was an inner entry; the outer one still holds the lock.
 * - `lost`: the lock was not ours any more.
 * - `pending`: the backend did not answer; the release is retried in the background until the lease is over.
 */
export type ReleaseResult = 'released' | 'nested' | 'lost' | 'pending';

/** The JSON form of a {@link Lock}. */
export interface LockJson extends Pick<Lock, 'key' | 'keys' | 'provider' | 'mode' | 'acquiredAt'> {
  /** As text, because JSON has no numbers of this size. */
  readonly fencingToken: string | null;
  /** Those of each key. */
  readonly fencingTokens: Readonly<Record<string, string | null>>;
}

/**
 * A lock that is held: what `acquire` returns and what a task under `withLock` receives.
 *
 * A lock is a lease. It is exclusive as long as its provider's assumptions hold and `isHeld()` is true; between that
 * check and a write the process may still be paused for longer than the lease. Use a lock to avoid work; use its
 * fencing token, or the same database transaction, to avoid damage.
 */
export interface Lock extends AsyncDisposable {
  /** The logical key; of several keys the first in sorted order. */
  readonly key: string;
  /** All keys of this lock, sorted. */
  readonly keys: readonly string[];
  /** Name of the provider that granted it. */
  readonly provider: string;
  readonly mode: LockMode;
  /** Random id of this hold. Treat it as a secret: it is enough to release the lock. */
  readonly holder: string;
  /** When the last key was granted, by this machine's wall clock. For display only. */
  readonly acquiredAt: Date;
  /**
   * A number that is larger than that of every earlier holder of this key. Send it along with every write, and let the
   * resource refuse a smaller one than it has seen. `null` where the provider has none that is honest, and for a lock
   * of several keys (see {@link fencingTokens}).
   */
  readonly fencingToken: bigint | null;
  /** The fencing token of each key. */
  readonly fencingTokens: ReadonlyMap<string, bigint | null>;
  /**
   * Aborts with `LockLostError` when the lock is lost. A look at it is a look at the clock: after a blocked event loop, that may abort it and call its listeners.
   *
   * In a decorated async generator it also aborts, with an `AbortError`, when the consumer calls `return()` while the generator works on its next value.
   */
  readonly signal: AbortSignal;
  /** Milliseconds until the local deadline, by the monotonic clock; 0 when the lock is not held. */
  remaining(): number;
  /** Whether the lock is still surely ours: computed from the clock at this call, never from a timer that may be late. */
  isHeld(): boolean;
  /**
   * Throws unless the lock is surely ours.
   *
   * @throws LockLostError when it is lost or was released.
   * @throws LockUnavailableError when the machine was suspended and the next renewal has not confirmed the lock yet.
   */
  assertHeld(): void;
  /**
   * Renews the lease now, to `lease` ms from now (default: the lease it was acquired with), and keeps that length for
   * later renewals: 100 ms to 24.8 days. Never beyond `maxHold`.
   *
   * @throws LockLostError when the lock is lost or was released.
   * @throws LockUnavailableError when the backend does not answer; the lock stays held until its deadline.
   * @throws LockConfigError for a lease that cannot be used.
   */
  extend(lease?: Duration): Promise<void>;
  /**
   * Runs `task` with this lock in hand: calls in it that take the same key re-enter this lock. So does all that `task` starts, also what a
   * queue of the process starts in its async context, so put nothing in a queue here: `{ within: lock }` is one call's alone.
   *
   * The result is that of `task`; instead of a promise, another one that settles like it. If `task` throws, or its promise rejects, the release of a row lock rolls back what was written in its transaction, unless
   * {@link ReleaseSettings.rollback} says otherwise.
   *
   * @throws LockLostError when it was released: the task would run without a lock.
   */
  run<T>(task: () => T): T;
  /** Gives the lock back. Idempotent; never rejects. `await using` calls it without settings. */
  release(settings?: ReleaseSettings): Promise<ReleaseResult>;
  /** For logs: without {@link holder}. */
  toJSON(): LockJson;
}
