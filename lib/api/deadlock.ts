import type { LockMode } from './lock-mode.js';

/** One of the callers that wait for each other in a cycle. It holds the lock for which the caller before it waits. */
export interface DeadlockMember {
  /** The module option `instance` of its application. */
  readonly instance: string;
  /** The decorated method that waits, such as `OrderService.pay`, or `null` for a call of `LockService`. */
  readonly method: string | null;
  /** The key that it holds. */
  readonly holds: string;
  /** The key for which it waits. */
  readonly waitsFor: string;
  /** The mode in which it waits. */
  readonly mode: LockMode;
}
