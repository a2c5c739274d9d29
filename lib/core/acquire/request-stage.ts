import type { Timer } from '../../api/clock.js';
import type { LockError } from '../../api/errors.js';
import type { HeldGrant } from '../hold/held-grant.js';
import type { Waiter } from './waiter.js';

/** The request will be sent: it is new, or the last attempt failed. */
export interface Pausing {
  readonly phase: 'pausing';
  /** The timer that ends the pause. Without a timer, the request is sent in this tick. */
  readonly timer: Timer | undefined;
  /** Why the last attempt failed. */
  readonly failure: unknown;
}

/**
 * The request is at the backend.
 *
 * - `sent`: the backend hasn't responded to it or queued it.
 * - `queued`: it waits in the backend's queue.
 */
export interface InFlight {
  phase: 'sent' | 'queued';
  /** The waiter that was oldest when the request was sent. */
  readonly sentFor: Waiter | undefined;
  /** When the request was sent, or when its early waiter's turn started. */
  sentAt: number;
  /** Why the previous attempt failed, or what the request is waiting for instead of the lock. */
  failure: unknown;
}

/** The request was refused or released, and its id is invalid. */
export interface Over {
  readonly phase: 'over';
}

export const NEW: Pausing = { phase: 'pausing', timer: undefined, failure: undefined };
export const OVER: Over = { phase: 'over' };

/** A change that a request reports to its queue. */
export type RequestChange =
  /** The backend queued the request. `instead`: what the request is waiting for instead of the lock. */
  | { readonly to: 'queued'; readonly instead: LockError | undefined }
  /** The attempt failed. The request is sent again after a pause. */
  | { readonly to: 'repeated' }
  | { readonly to: 'granted'; readonly grant: HeldGrant }
  /** The grant expired before it arrived, and was released. */
  | { readonly to: 'expired' }
  /** Others hold the lock. */
  | { readonly to: 'busy'; readonly sentFor: Waiter | undefined }
  /** The backend rejected the request, or an earlier key was not granted. The request was released. */
  | { readonly to: 'failed'; readonly error: unknown; readonly sentFor: Waiter | undefined };
