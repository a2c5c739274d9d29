import type { LockMode } from './lock-mode.js';

/** The state of a key at a backend, for operators. */
export interface LockInfo {
  readonly key: string;
  /** `retained`: released before its `minHold` had passed, so nobody has it and nobody gets it. */
  readonly state: 'held' | 'retained';
  readonly mode: LockMode;
  /** How many hold it: more than one only in the modes shared and limited. */
  readonly holders: number;
  /** Of a limited lock: the smallest limit. */
  readonly limit?: number;
  /** Of a limited lock: how much of the limit is taken, also by what is retained (`minHold`). */
  readonly used?: number;
  /** How many wait for it, or `null` where the backend does not know. */
  readonly waiters: number | null;
  /** Milliseconds until the backend frees the key without a renewal, or `null` for a lock that lives with its session. */
  readonly expiresIn: number | null;
  /**
   * The largest token of its grant, or `null` where the provider has none. On Redis, memory and version locks a grant may serve up to 64 callers of a process
   * one after the other, so the token of its present holder may be up to 63 smaller: compare with it by `<=`, never by equality.
   */
  readonly fencingToken: bigint | null;
  /**
   * Which applications hold it, each by its module option `instance`, or by its id where the backend does not know its name any more. Without
   * repetition, and of the first 100 holders; empty for a key that is retained.
   */
  readonly instances: readonly string[];
  /** When the latest holder got it, by the clock of the server; `null` for shared locks, and where the backend does not know. */
  readonly since: Date | null;
}

/** The process that leads a key, as any process sees it. */
export interface Leader {
  /** Its module option `instance`, or its id where the backend does not know the name; `null` where the backend knows neither. */
  readonly instance: string | null;
  /** When it got the lock, by the clock of the server; `null` where the backend does not know. */
  readonly since: Date | null;
  /**
   * That of the term, or up to 63 larger, since a grant may serve several callers: {@link LockInfo.fencingToken}. `null` where the provider has none that is
   * honest.
   */
  readonly fencingToken: bigint | null;
}

/** Which locks to list. */
export interface ListOptions {
  /** Only keys that begin with this. Default: all keys of the namespace. */
  readonly prefix?: string | undefined;
  /** Name of the provider. Default: the module's default provider. */
  readonly provider?: string | undefined;
}

/** A lock that this process holds. */
export interface HeldLock {
  readonly key: string;
  readonly provider: string;
  readonly mode: LockMode;
  /** The decorated method, or `null` for a lock that was taken through `LockService`. */
  readonly method: string | null;
  readonly acquiredAt: Date;
  readonly fencingToken: bigint | null;
  /** Milliseconds until the local deadline. */
  readonly remaining: number;
  /** How many entries are open: more than one where the holder re-entered. */
  readonly entries: number;
}

/** A lock that this process waits for. */
export interface WaitingLock {
  readonly key: string;
  readonly provider: string;
  readonly mode: LockMode;
  /** The decorated method, or `null` for a lock that was taken through `LockService`. */
  readonly method: string | null;
  /** Milliseconds since the call. */
  readonly waited: number;
}

/** How many callers have waited, and for how long together. */
export interface WaitSum {
  readonly waits: number;
  /** In ms. */
  readonly waited: number;
}

/**
 * How the callers of this process have waited for busy locks of one template, since the application started: those that were granted their lock, and
 * those that left. A caller with `wait: 0` does not wait.
 */
export interface LockContention {
  /** The key template; of calls without one, the text of their keys before the first `:`. `null` in the row of all that came after the first 499. */
  readonly template: string | null;
  /** `null` in the row of all that came after the first 499. */
  readonly provider: string | null;
  /** Waits in which the lock went from holder to holder. */
  readonly queue: WaitSum;
  /** Waits for one holder that had the lock since before the caller came. */
  readonly holder: WaitSum;
  /** Waits for several holders together (`shared`, `limited`), and where the backend does not know the holder. */
  readonly unknown: WaitSum;
  /**
   * The waits of `holder` by the instance that held, the longest first: by its module option `instance`, or 12 digits while its name is not known. `null`
   * stands for those that came after the first eight.
   */
  readonly instances: readonly (WaitSum & { readonly instance: string | null })[];
}

/**
 * The record of a job.
 *
 * - `baseline`: nothing has run. Ticks after `tick` are missed if nobody begins them.
 * - `running`: it runs, or its process or its lock was lost meanwhile.
 * - `ended`: its task has ended.
 * - `failed`: its task has failed; or it has lost its process or its lock and is not begun again, and then it has no `endedAt`.
 */
export type JobState = 'baseline' | 'running' | 'ended' | 'failed';

/** The last run of a job in the whole fleet. All times but `nextTick` are by the clock of the server. */
export interface ListedJob {
  /** The key of its lock. */
  readonly key: string;
  readonly provider: string;
  readonly state: JobState;
  /** When it was due. */
  readonly tick: Date;
  readonly begunAt: Date;
  /** `null` while it runs, and for a run whose end is not known. */
  readonly endedAt: Date | null;
  /** The module option `instance` of the application that has begun it. */
  readonly instance: string;
  /** 1, or more after crashes (`afterCrash`); 0 for a `baseline` of a tick that was never begun. */
  readonly attempt: number;
  /** Its cron expression and zone, such as `0 3 * * * (Europe/Berlin)`, or `null` for `runOnce()` with `due`. */
  readonly schedule: string | null;
  /** When it is due again, by the clock of this process; `null` if this application does not schedule it. */
  readonly nextTick: Date | null;
}
