import type { LockMode } from './lock-mode.js';

/** A caller in a cycle of callers that wait for each other. It holds the lock the previous caller is waiting for. */
export interface DeadlockMember {
  /** The `instance` module option of the caller's application. */
  readonly instance: string;
  /** The decorated method that waits, such as `OrderService.pay`, or `null` for a call to `LockService`. */
  readonly method: string | null;
  /** The key the caller holds. */
  readonly holds: string;
  /** The key the caller is waiting for. */
  readonly waitsFor: string;
  /** The mode the caller requested. */
  readonly mode: LockMode;
}
