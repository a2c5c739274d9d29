import type { Timer } from '../../api/clock.js';
import type { LockError } from '../../api/errors.js';
import type { HeldGrant } from '../hold/held-grant.js';
import type { Waiter } from './waiter.js';

/** It was not sent yet, or its last ask was not answered: it will be sent. */
export interface Pausing {
  readonly phase: 'pausing';
  /** Ends the pause. Without one it is sent in this tick. */
  readonly timer: Timer | undefined;
  /** Why its last ask was not answered. */
  readonly failure: unknown;
}

/**
 * - `asking`: its ask is in flight, and the backend has neither answered nor queued it.
 * - `queued`: it waits at the backend.
 */
export interface Sent {
  phase: 'asking' | 'queued';
  /** The waiter that was the oldest when it was sent. */
  readonly askedFor: Waiter | undefined;
  /** When it was sent, or its waiter had its turn since. On the monotonic clock. */
  askedAt: number;
  /** How many suspensions of the machine were known then. */
  readonly suspensions: number;
  /** Why the ask before was not answered, or what it waits for instead of the lock. */
  failure: unknown;
}

/** It was refused or given up: its id is dead. */
export interface Over {
  readonly phase: 'over';
}

export const NEW: Pausing = { phase: 'pausing', timer: undefined, failure: undefined };
export const OVER: Over = { phase: 'over' };

/** What happens to a request, for its queue. */
export type RequestChange =
  /** The backend has queued it. `instead`: it waits for that, and not for the lock. */
  | { readonly to: 'queued'; readonly instead: LockError | undefined }
  /** Its ask was not answered, and is sent again after a pause. */
  | { readonly to: 'repeated' }
  | { readonly to: 'granted'; readonly grant: HeldGrant }
  /** Its grant was over before it came, and is given back. */
  | { readonly to: 'outrun' }
  /** Others have the lock. */
  | { readonly to: 'busy'; readonly askedFor: Waiter | undefined }
  /** The backend refuses, or the request was not to be asked. It is given up. */
  | { readonly to: 'failed'; readonly error: unknown; readonly askedFor: Waiter | undefined };
