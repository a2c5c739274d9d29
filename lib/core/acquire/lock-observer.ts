import type { LockError, LockLostError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { AcquireTrace } from '../../api/lock-traces.js';
import type { GrantedLock } from '../hold/granted-lock.js';
import type { Holder } from '../hold/holder.js';
import type { KeyRequest } from './key-request.js';
import type { LockPlan } from '../plan/lock-plan.js';
import type { Waiter } from './waiter.js';

/** The error for an early waiter whose previous key was not granted. Never reaches the user. */
export const NOT_ASKED = Symbol('not asked');

/** Why a waiter leaves without the lock. */
export type Refusal =
  /** The queue has reached its limit. */
  | { readonly why: 'full' }
  /** Others hold the lock. `request`: the request that was reported busy, if the queue has already dropped it. */
  | { readonly why: 'busy'; readonly request?: KeyRequest }
  /** The backend didn't respond. `sent`: whether a command may have reached it. */
  | { readonly why: 'unavailable'; readonly cause: unknown; readonly sent: boolean }
  /** The backend rejected the request with an error. */
  | { readonly why: 'failed'; readonly error: unknown }
  /** The caller aborted, the application stops, or the wait would never end. */
  | { readonly why: 'dismissed'; readonly error: unknown };

/** How a hold ends. `nested`: the call that acquired the lock has ended, but a nested call still holds it. */
export type HoldEnd = LockLostError | 'nested' | { readonly result: 'released' | 'pending'; readonly failed: boolean };

/** Runs and traces one acquisition. */
export type Traced = <T>(
  subject: LockEvent,
  signal: AbortSignal | undefined,
  acquire: (trace: AcquireTrace) => Promise<T>,
) => Promise<T>;

/**
 * Reports what happens to one provider's callers, as events, traces, and logs, and as errors to callers that leave
 * without the lock.
 *
 * The core never waits for an observer. Only {@link nests} and {@link left} affect a caller.
 */
export interface LockObserver {
  /**
   * A call may have to wait for these keys, in this order, while it holds the `outer` locks (innermost first).
   *
   * @param around the holder that the call must wait for, although the call runs in that holder's async context
   * @throws if the application rejects such calls
   */
  nests(keys: readonly string[], plan: LockPlan, outer: readonly GrantedLock[], around?: Holder): void;
  /** Traces an acquisition. Returns `undefined` without building a trace if there are no subscribers. */
  readonly traced: Traced | undefined;
  /** A waiter is waiting in the queue or at the backend, for the lock or for whatever `instead` specifies. */
  waits(waiter: Waiter, instead: LockError | undefined): void;
  /** A waiter has become a holder. */
  entered(waiter: Waiter, holder: Holder): void;
  /** A waiter leaves without the lock. @returns the error that its call gets */
  left(waiter: Waiter, refusal: Refusal): unknown;
  /** A new holder is about to become part of a lock. Called in the call's async context. */
  holds(holder: Holder): void;
  /** A holder's grant was renewed, or the renewal went unanswered. */
  renewed(holder: Holder, isAnswered: boolean): void;
  ended(holder: Holder, end: HoldEnd): void;
  /** The provider closes. */
  stop(): void;
}
