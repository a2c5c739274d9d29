import type { ConfiguredDuration, Duration } from './duration.js';
import type { LockMode } from './lock-mode.js';
import type { Lock } from './lock.js';

/**
 * What a call does if the lock is lost while its task runs.
 *
 * - `throw`: wait for the task to end, then reject with `LockLostError`, whose `outcome` contains the task's value or
 *   error.
 * - `ignore`: return the task's value, or throw its error.
 */
export type LossPolicy = 'throw' | 'ignore';

/**
 * When a call that ran under a lock settles.
 *
 * - `confirmed`: when the backend has responded to the release.
 * - `sent`: when the release has been sent, which saves the caller a round trip. An event (`released`,
 * `release-pending`, or `lost`) reports the outcome. The backend executes the release before this process's next
 * acquire. Shutdown waits for the release. The call still rejects if the lock is known to be lost when the task ends,
 * but not if only the backend knows.
 */
export type ReleasePolicy = 'confirmed' | 'sent';

/**
 * How to acquire a lock. An omitted option comes from the class (`@LockDefaults`), then from the module's `defaults`,
 * then from the built-in default given here.
 *
 * Providers add their own options to this interface through declaration merging.
 *
 * @example
 * ```ts
 * await locks.withLock('order:42', () => ship(42), { wait: '2s', maxHold: '1m' });
 * ```
 */
export interface LockOptions {
  /** Name of the provider to use. Default: the module's default provider. */
  provider?: string | undefined;
  /**
   * `shared` allows any number of readers at once, but no writers. Default `exclusive`. Throws
   * `LockConfigError` if the provider doesn't support shared locks; the call never falls back to exclusive.
   */
  mode?: Exclude<LockMode, 'limited'> | undefined;
  /**
   * How many callers may hold the key at once across the fleet: a whole number from 1 to 10 000 times `weight`. Callers
   * are admitted first come, first served, each with its own lease, watchdog, and loss signal. If callers use different
   * limits, the smallest limit among the caller and the holders applies. Cannot be combined with `mode`. Throws
   * `LockConfigError` if the provider doesn't support limits.
   *
   * `fencingToken` is `null`, because a resource that compares tokens would reject all but the latest holder.
   */
  limit?: number | undefined;
  /** How much of `limit` this holder uses: a whole number from 1 to `limit`. Default 1. */
  weight?: number | undefined;
  /**
   * How long to wait for a busy lock, in ms. Default 5 s (`tryAcquire`, `@RunOnce`, and `onBusy: 'skip'`: 0). With 0,
   * the call doesn't wait for a holder. At most 24.8 days, or `Infinity`; then a call can wait forever if two
   * callers nest locks in opposite orders, or if you didn't pass the outer lock (`within`). However short the wait, the
   * backend gets at least 1 s to respond; one that reconnects automatically (Redis, SQL, memcached) also gets its
   * `commandTimeout`.
   */
  wait?: Duration | undefined;
  /**
   * How long the backend keeps the lock without a renewal, in ms: if a holder crashes, others wait this long. The
   * watchdog renews the lock every third of this time, until release or `maxHold`. Default 30 s (on Redlock, `maxLease`
   * if that is shorter); at least 100 ms and at most 24.8 days. Throws `LockConfigError` if the provider's locks live
   * as long as its session.
   */
  lease?: Duration | undefined;
  /**
   * The maximum time to hold the lock, in ms, after its last key is granted. After that, the lock is released and its
   * signal aborts. At most 24.8 days, or `Infinity`. Default `Infinity`.
   */
  maxHold?: Duration | undefined;
  /**
   * The minimum time that the key stays locked, in ms, even if the task ends earlier or the process crashes.
   * Default 0, at most `maxHold` and 24.8 days. Throws `LockConfigError` if the provider can't retain keys.
   */
  minHold?: Duration | undefined;
  /**
   * The outer lock to re-enter for each of the call's keys that it holds. Throws `LockConfigError` if
   * the lock holds none of the call's keys, or `LockLostError` if it was lost or released.
   */
  within?: Lock | undefined;
  /**
   * What the call does if the lock is lost while its task runs. Default `throw`.
   *
   * - `throw`: rejects with `LockLostError` after the task ends; the task's result is in `outcome`.
   * - `ignore`: returns the task's value, or throws its error.
   */
  onLost?: LossPolicy | undefined;
  /**
   * Whether `withLock`, decorated methods, and `await using` wait for the response to the release. Default `confirmed`.
   * `lock.release()` always waits for it. Throws `LockConfigError` for `sent` if the provider doesn't execute commands
   * in the order they were sent.
   */
  release?: ReleasePolicy | undefined;
  /**
   * Ends the wait: the call rejects with `signal.reason` and leaves nothing behind. Aborting it doesn't release a held
   * lock.
   */
  signal?: AbortSignal | undefined;
}

/**
 * The options that the module can set for all locks. Duration types allow any string because durations often come from
 * configuration.
 */
export interface LockDefaults extends Pick<LockOptions, 'onLost' | 'release'> {
  /**
   * Whether a nested call may re-enter a lock that already holds its key. Default `explicit`.
   *
   * - `explicit`: only if you pass the outer lock, with `lock.run()` or {@link LockOptions.within}. Any other nested
   *   call waits and gets a `LockBusyError` that explains the fix; a warning is logged.
   * - `true`: also if the call runs in the lock's async context. Then a queue that starts a task in another task's
   *   context (p-limit below 5, p-queue below 10, bottleneck, fastq, `async.queue`) lets two callers in at the same
   *   time: see docs/several-keys.md.
   */
  reentrant?: true | 'explicit' | undefined;
  /** As {@link LockOptions.wait}. */
  wait?: ConfiguredDuration | undefined;
  /** As {@link LockOptions.lease}. */
  lease?: ConfiguredDuration | undefined;
  /** As {@link LockOptions.maxHold}. */
  maxHold?: ConfiguredDuration | undefined;
}
