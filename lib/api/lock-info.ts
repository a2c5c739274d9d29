import type { LockMode } from './lock-mode.js';

/** A key's state on a backend, for operators. */
export interface LockInfo {
  readonly key: string;
  /**
   * `retained`: the lock was released before its `minHold` had passed, so it has no holder and cannot be acquired yet.
   */
  readonly state: 'held' | 'retained';
  readonly mode: LockMode;
  /** The number of holders: more than one only in `shared` and `limited` modes. */
  readonly holders: number;
  /** For a limited lock, the smallest limit among its holders. */
  readonly limit?: number;
  /** For a limited lock, how much of the limit is used, including retained shares (`minHold`). */
  readonly used?: number;
  /**
   * How many requests are waiting at the backend, or `null` if it does not know. Callers that wait in the holder's
   * process are not counted.
   */
  readonly waiters: number | null;
  /**
   * Milliseconds until the backend frees the key if the lock isn't renewed, or `null` for a lock that lives as long as
   * its session.
   */
  readonly expiresIn: number | null;
  /**
   * The grant's largest fencing token, or `null` if the provider has no tokens. For Redis, memory, and version locks,
   * one grant may serve up to 64 of a process's callers in turn, so the current holder's token may be up to 63 smaller:
   * compare with `<=`, not `===`.
   */
  readonly fencingToken: bigint | null;
  /**
   * The applications that hold the key, each named by its `instance` module option, or by its id if the backend no
   * longer knows the name. Each appears once; only the first 100 holders are considered. Empty for a retained key.
   */
  readonly instances: readonly string[];
  /**
   * When the latest holder acquired the key, by the server's clock; `null` for shared locks or if the backend doesn't
   * know.
   */
  readonly since: Date | null;
}

/** A key's leader, as reported by the backend. */
export interface Leader {
  /**
   * The leader's `instance` module option, or its id if the backend doesn't know the name; `null` if the backend knows
   * neither.
   */
  readonly instance: string | null;
  /** When the leader acquired the lock, by the server's clock; `null` if the backend doesn't know. */
  readonly since: Date | null;
  /**
   * The term's fencing token, or a number up to 63 higher, because one grant may serve several callers: see
   * {@link LockInfo.fencingToken}. `null` if the provider has no reliable tokens.
   */
  readonly fencingToken: bigint | null;
}

/** Which locks to list. */
export interface ListOptions {
  /** Lists only keys with this prefix. Default: all keys in the namespace. */
  readonly prefix?: string | undefined;
  /** Name of the provider. Default: the module's default provider. */
  readonly provider?: string | undefined;
}

/** A lock held by this process. */
export interface HeldLock {
  readonly key: string;
  readonly provider: string;
  readonly mode: LockMode;
  /** The decorated method, or `null` for a lock acquired through `LockService`. */
  readonly method: string | null;
  readonly acquiredAt: Date;
  readonly fencingToken: bigint | null;
  /** Milliseconds until the local deadline. */
  readonly remaining: number;
  /** The number of open entries; more than one after re-entry. */
  readonly entries: number;
}

/** A lock that this process is waiting for. */
export interface WaitingLock {
  readonly key: string;
  readonly provider: string;
  readonly mode: LockMode;
  /** The decorated method, or `null` for a lock requested through `LockService`. */
  readonly method: string | null;
  /** Milliseconds since the call began. */
  readonly waited: number;
}

/** How many callers waited, and for how long in total. */
export interface WaitSum {
  readonly waits: number;
  /** The total duration of these waits, in ms. */
  readonly waited: number;
}

/**
 * How long callers in this process have waited for one template's busy locks since the application started, whether or
 * not they got the lock. A caller with `wait: 0` doesn't wait.
 */
export interface LockContention {
  /**
   * The key template; for calls without a template, the part of the key before the first `:`. `null` in the row that
   * sums all templates after the first 499.
   */
  readonly template: string | null;
  /** The provider; `null` in the row that sums all templates after the first 499. */
  readonly provider: string | null;
  /** Waits in which the lock passed from holder to holder. */
  readonly queue: WaitSum;
  /** Waits for a single holder that had the lock before the caller arrived. */
  readonly holder: WaitSum;
  /**
   * Waits for several holders at the same time (`shared`, `limited`), or for a holder that the backend doesn't know.
   */
  readonly unknown: WaitSum;
  /**
   * The `holder` waits, grouped by the holder's instance, longest first. An instance is named by its `instance` module
   * option, or by its 12-digit id while the name is unknown. `null` covers all instances after the first eight.
   */
  readonly instances: readonly (WaitSum & { readonly instance: string | null })[];
}

/**
 * A job record.
 *
 * - `baseline`: nothing has run yet. Ticks after `tick` count as missed if no process starts them.
 * - `running`: the job is running, or its process died or lost the lock.
 * - `ended`: the task succeeded.
 * - `failed`: the task threw, or its process died or lost the lock and the run won't be repeated (then `endedAt` is
 *   `null`).
 */
export type JobState = 'baseline' | 'running' | 'ended' | 'failed';

/** A job's most recent run across the fleet. All times except `nextTick` come from the server's clock. */
export interface ListedJob {
  /** The key of the job's lock. */
  readonly key: string;
  readonly provider: string;
  readonly state: JobState;
  /** When the run was due. */
  readonly tick: Date;
  readonly startedAt: Date;
  /** When the run ended; `null` while it is running or if its end is unknown. */
  readonly endedAt: Date | null;
  /** The `instance` module option of the application that started the run. */
  readonly instance: string;
  /** The attempt number: 1, or higher after crashes (`afterCrash`); 0 for a `baseline` whose tick was never started. */
  readonly attempt: number;
  /**
   * The job's cron expression and time zone, such as `0 3 * * * (Europe/Berlin)`, or `null` for `runOnce()` with `due`.
   */
  readonly schedule: string | null;
  /** When the job is due next, by this process's clock; `null` if this application doesn't schedule it. */
  readonly nextTick: Date | null;
}
