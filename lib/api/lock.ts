import type { Duration } from './duration.js';
import type { LockMode } from './lock-mode.js';

/** How {@link Lock.release} releases a lock. */
export interface ReleaseSettings {
  /**
   * Whether to roll back your writes in a row lock's transaction; other locks don't have one. Defaults to
   * whether a task passed to {@link Lock.run} has failed. For a nested entry, the outermost entry decides.
   */
  readonly rollback?: boolean;
}

/**
 * How a release ended.
 *
 * - `released`: the backend confirmed the release.
 * - `nested`: another entry, usually the outer one, still holds the lock.
 * - `lost`: the lock had already been lost.
 * - `pending`: the backend didn't respond. The release is retried in the background until the lease ends.
 */
export type ReleaseResult = 'released' | 'nested' | 'lost' | 'pending';

/** The JSON form of a {@link Lock}. */
export interface LockJson extends Pick<Lock, 'key' | 'keys' | 'provider' | 'mode' | 'acquiredAt'> {
  /** The fencing token as a string, because JSON numbers can't hold it exactly. */
  readonly fencingToken: string | null;
  /** Each key's fencing token, as a string. */
  readonly fencingTokens: Readonly<Record<string, string | null>>;
}

/**
 * A lock you hold: `acquire` returns it, and `withLock` passes it to the task.
 *
 * A lock is a lease. It is exclusive while its provider's assumptions hold and `isHeld()` is true. But the process may
 * still pause for longer than the lease between `isHeld()` and a write. Use a lock to avoid duplicate work; to prevent
 * damage, use its fencing token or write in its database transaction.
 *
 * @example
 * ```ts
 * await using lock = await locks.acquire(`order:${id}`);
 * for (const item of items) {
 *   lock.assertHeld();
 *   await ship(item, { signal: lock.signal });
 * }
 * ```
 */
export interface Lock extends AsyncDisposable {
  /** The logical key; if there are several, the first in sorted order. */
  readonly key: string;
  /** All keys of this lock, sorted. */
  readonly keys: readonly string[];
  /** Name of the provider that granted the lock. */
  readonly provider: string;
  readonly mode: LockMode;
  /** Random id of this hold. Treat it as a secret: anyone who has it can release the lock. */
  readonly holder: string;
  /** When the last key was granted, by this machine's wall clock. For display only. */
  readonly acquiredAt: Date;
  /**
   * A number larger than the token of any earlier holder of this key. Send it with every write, and have the resource
   * reject any token smaller than one it has seen. `null` if the provider has no reliable tokens, and for a multi-key
   * lock (see {@link fencingTokens}).
   */
  readonly fencingToken: bigint | null;
  /** Each key's fencing token. */
  readonly fencingTokens: ReadonlyMap<string, bigint | null>;
  /**
   * Aborts with `LockLostError` when the lock is lost. Reading `aborted` checks the clock; if the event loop was
   * blocked, this may abort the signal and call its listeners.
   *
   * In a decorated async generator, it also aborts with an `AbortError` if the consumer calls `return()` while the
   * generator is computing its next value.
   */
  readonly signal: AbortSignal;
  /** Milliseconds until the local deadline, by the monotonic clock; 0 if the lock is not held. */
  remaining(): number;
  /**
   * Whether you definitely still hold the lock. Computed from the clock on each call, never from a timer that may be
   * late.
   */
  isHeld(): boolean;
  /**
   * Throws unless you definitely still hold the lock. Call it before a write that requires the lock.
   *
   * @throws LockLostError when the lock is lost or was released.
   * @throws LockUnavailableError if the machine was suspended and no renewal has confirmed the lock since.
   */
  assertHeld(): void;
  /**
   * Extends the lease to `lease` ms from now, and also uses that length for later renewals. Range: 100 ms to 24.8 days
   * (default: the current length). Never extends the lock beyond `maxHold`. A shorter lease doesn't end the current one
   * early on the server: if this process crashes, the key stays locked until then.
   *
   * @throws LockLostError when the lock is lost or was released.
   * @throws LockUnavailableError when the backend doesn't respond; the lock stays held until its deadline.
   * @throws LockConfigError for an invalid lease.
   * @example
   * ```ts
   * await lock.extend('2m'); // before work that blocks the event loop
   * ```
   */
  extend(lease?: Duration): Promise<void>;
  /**
   * Runs `task` under this lock: calls within it that acquire the same key re-enter this lock. Other code that runs in
   * its async context, including queued tasks, re-enters it too. Don't add tasks to an in-process queue here: pass
   * `{ within: lock }`, which affects only a single call.
   *
   * Returns `task`'s result; if it's a promise, returns one that settles the same way. If `task` throws
   * or its promise rejects, the release of a row lock rolls back its transaction, unless {@link
   * ReleaseSettings.rollback} says otherwise.
   *
   * @throws LockLostError when the lock has been released, because the task would run without a lock.
   * @example
   * ```ts
   * await using lock = await locks.acquire('order:42');
   * await lock.run(() => orders.ship('42')); // ship() is decorated with the same key, and re-enters the lock
   * ```
   */
  run<T>(task: () => T): T;
  /**
   * Releases the lock. Idempotent. Never rejects; the result says how the release ended. `await using` calls it without
   * settings.
   */
  release(settings?: ReleaseSettings): Promise<ReleaseResult>;
  /** The lock's JSON form, without its {@link holder} id. */
  toJSON(): LockJson;
}
