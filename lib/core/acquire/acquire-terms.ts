import type { LockEvent } from '../../api/lock-events.js';
import type { LimitShare } from '../../api/lock-mode.js';
import type { Lock } from '../../api/lock.js';
import type { Hold } from '../hold/hold.js';

/** For how long a lock is kept, and whether it is renewed; all times in ms. */
export interface HoldTiming {
  readonly lease: number;
  readonly renew: boolean;
  readonly minHold: number;
}

/** What one caller wants of one key. */
export interface AcquireTerms {
  readonly subject: LockEvent;
  readonly timing: HoldTiming;
  /** In mode `limited`. */
  readonly limited: LimitShare | undefined;
  /** When the caller came, on the monotonic clock. */
  readonly startedAt: number;
  /** When the caller came to the queue of this key: later than that for the second of several keys. */
  readonly since: number;
  /** When the caller stops waiting, on the monotonic clock. */
  readonly deadline: number;
  readonly signal: AbortSignal | undefined;
  /** How many other keys of this provider the caller holds. */
  readonly otherKeysHeld: number;
  /** How many callers it stands for: more than one for a request of a provider that is built on this one. */
  readonly callers: number;
  /** The locks around the caller. As long as one of them is held, a drain waits for the caller instead of sending it away. */
  readonly outerLocks: readonly Pick<Lock, 'isHeld'>[];
  /** The hold of the key in the caller's own async context, which the caller has not in hand: it may wait for itself. */
  readonly around: Hold | undefined;
}
