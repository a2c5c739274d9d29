import type { ConfiguredDuration, Duration } from './duration.js';
import type { LockMode } from './lock-mode.js';
import type { Lock } from './lock.js';

/**
 * The treatment of a task whose lock was lost while it ran.
 *
 * - `throw`: wait for the task to end, then reject with `LockLostError`, whose `outcome` keeps the task's value or error.
 * - `ignore`: the task's own value or error passes.
 */
export type LossPolicy = 'throw' | 'ignore';

/**
 * When a call that ran under a lock ends.
 *
 * - `confirmed`: when the backend has answered the release.
 * - `sent`: when the release is on its way, which saves the caller a round trip. Its outcome is an event (`released`, `release-pending` or
 *   `lost`). The next acquire of this process finds it done, because it is executed behind it, and a shutdown waits for it. A loss that is
 *   known when the task ends still rejects; one that only the backend knows does not reach the caller.
 */
export type ReleasePolicy = 'confirmed' | 'sent';

/**
 * How to take a lock. What the call or the decorator leaves open comes from the class (`@LockDefaults`), then from the
 * module's `defaults`, then from the built-in default given here.
 *
 * Providers add options of their own to this interface by declaration merging.
 */
export interface LockOptions {
  /** Name of the provider to use. Default: the module's default provider. */
  provider?: string | undefined;
  /**
   * `shared`: any number of readers, and no writer beside them. Default `exclusive`. `LockConfigError` on a provider without shared locks, never
   * silently exclusive.
   */
  mode?: Exclude<LockMode, 'limited'> | undefined;
  /**
   * How many may hold the key at a time, in the whole fleet: a whole number from 1 to 10 000 times `weight`. They enter first come, first
   * served, each with a lease, a watchdog and a loss signal of its own. While callers ask with different limits, the smallest one of the holders
   * and the caller applies. Excludes `mode`. `LockConfigError` on a provider without limits.
   *
   * `fencingToken` is `null`: a resource that compares tokens would refuse all holders but the latest.
   */
  limit?: number | undefined;
  /** How much of `limit` this holder takes: a whole number from 1 to `limit`. Default 1. */
  weight?: number | undefined;
  /**
   * How long to queue for a busy lock, in ms. Default 5 s (`tryAcquire`, `@RunOnce` and `onBusy: 'skip'`: 0). 0 does not wait for a holder. At most 24.8 days, or
   * `Infinity`, which can wait permanently where two callers nest locks in opposite order, or where a nested call has not its lock in hand. However short the wait is, a backend that is silent has at
   * least 1 s to answer, and one that connects again by itself (Redis, SQL, memcached) its `commandTimeout` more.
   */
  wait?: Duration | undefined;
  /**
   * How long the backend keeps the lock without a renewal, in ms: a crashed holder blocks others for this long. The watchdog renews it (each third
   * of it) until release or `maxHold`.
   * Default 30 s (on Redlock `maxLease`, if that is shorter), at least 100 ms and at most 24.8 days. `LockConfigError` on a provider whose locks live as long as its
   * session.
   */
  lease?: Duration | undefined;
  /** The longest time to hold the lock, in ms, counted from the last key granted; then it is released and its signal aborts. At most 24.8 days, or `Infinity`. Default `Infinity`. */
  maxHold?: Duration | undefined;
  /**
   * The minimum time the key stays locked, in ms, even if the task ends earlier or the process crashes.
   * Default 0, at most `maxHold` and 24.8 days. `LockConfigError` on a provider that cannot retain keys.
   */
  minHold?: Duration | undefined;
  /**
   * The lock in hand, which the call enters again if that has its key. `LockConfigError` if it has none of the keys, `LockLostError` if it
   * was lost or released.
   */
  within?: Lock | undefined;
  /**
   * The answer to the caller if the lock was lost while the task ran. Default `throw`.
   *
   * - `throw`: after the task, `LockLostError` with its `outcome`.
   * - `ignore`: the task's own value or error.
   */
  onLost?: LossPolicy | undefined;
  /**
   * Whether `withLock`, a decorated method and `await using` wait for the answer to the release. Default `confirmed`. `lock.release()` always
   * does. `sent` is a `LockConfigError` on a provider that does not execute commands in the order in which they were sent.
   */
  release?: ReleasePolicy | undefined;
  /** Ends the wait: the call rejects with `signal.reason` and leaves nothing behind. It does not end a hold. */
  signal?: AbortSignal | undefined;
}

/** The options that a module can set for all its locks. Durations may be any text, since they often come from configuration. */
export interface LockDefaults extends Pick<LockOptions, 'onLost' | 'release'> {
  /**
   * Whether a nested call may enter a lock that already holds its key. Default `explicit`.
   *
   * - `explicit`: only if you pass the outer lock, by `lock.run()` or {@link LockOptions.within}. Any other nested call waits and gets a
   *   `LockBusyError` that names the remedy; the log warns about it.
   * - `true`: also if the async context of the call has the lock. A queue that starts a task in the context of another task (p-limit below 5,
   *   p-queue below 10, bottleneck, fastq, `async.queue`) then lets two callers in at a time: see docs/several-keys.md.
   */
  reentrant?: true | 'explicit' | undefined;
  /** As {@link LockOptions.wait}. */
  wait?: ConfiguredDuration | undefined;
  /** As {@link LockOptions.lease}. */
  lease?: ConfiguredDuration | undefined;
  /** As {@link LockOptions.maxHold}. */
  maxHold?: ConfiguredDuration | undefined;
}
