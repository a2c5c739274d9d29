import type { Timer } from '../../api/clock.js';
import type { LockError } from '../../api/errors.js';
import type { HeldGrant } from '../hold/held-grant.js';
import type { Waiter } from './waiter.js';

/** The request will be sent: it is new, or its last attempt was not answered. */
export interface Pausing {
  readonly phase: 'pausing';
  /** The timer that ends the pause. Without a timer, the request is sent in this tick. */
  readonly timer: Timer | undefined;
  /** Why the last attempt was not answered. */
  readonly failure: unknown;
}

/**
 * The request was sent.
 *
 * - `asking`: the backend has neither answered nor queued it.
 * - `queued`: it waits at the backend.
 */
export interface Sent {
  phase: 'asking' | 'queued';
  /** The oldest waiter when the request was sent. */
  readonly askedFor: Waiter | undefined;
  /** When the request was sent, or when its early waiter had its turn. On the monotonic clock. */
  askedAt: number;
  /** How many suspensions of the machine were known when the request was sent. */
  readonly suspensions: number;
  /** Why the previous attempt was not answered, or what the request waits for instead of the lock. */
  failure: unknown;
}

/** The request was refused or given up, and its id is dead. */
export interface Over {
  readonly phase: 'over';
}

export const NEW: Pausing = { phase: 'pausing', timer: undefined, failure: undefined };
export const OVER: Over = { phase: 'over' };

/** A change of a request, which it reports to its queue. */
export type RequestChange =
  /** The backend queued the request. `instead`: the request waits for this and not for the lock. */
  | { readonly to: 'queued'; readonly instead: LockError | undefined }
  /** The attempt was not answered, and is sent again after a pause. */
  | { readonly to: 'repeated' }
  | { readonly to: 'granted'; readonly grant: HeldGrant }
  /** The grant expired before it arrived, and is released. */
  | { readonly to: 'outrun' }
  /** Others hold the lock. */
  | { readonly to: 'busy'; readonly askedFor: Waiter | undefined }
  /** The backend refused the request, or an earlier key was not granted. The request is given up. */
  | { readonly to: 'failed'; readonly error: unknown; readonly askedFor: Waiter | undefined };
