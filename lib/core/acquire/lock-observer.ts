import type { LockError, LockLostError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { AcquireTrace } from '../../api/lock-traces.js';
import type { GrantedLock } from '../hold/granted-lock.js';
import type { Holder } from '../hold/holder.js';
import type { KeyRequest } from './key-request.js';
import type { LockPlan } from '../plan/lock-plan.js';
import type { Waiter } from './waiter.js';

/** The error of a caller that was asked for before its turn, where the key before it was not granted. No user gets it. */
export const NOT_ASKED = Symbol('not asked');

/** Why a waiter leaves without the lock. */
export type Refusal =
  /** The queue has as many as it may have. */
  | { readonly why: 'full' }
  /** Others have the lock. `request`: the one that was answered so, if it is not the queue's any more. */
  | { readonly why: 'busy'; readonly request?: KeyRequest }
  /** The backend did not answer. */
  | { readonly why: 'unavailable'; readonly cause: unknown }
  /** The backend refused. */
  | { readonly why: 'failed'; readonly error: unknown }
  /** The application sends it away. */
  | { readonly why: 'dismissed'; readonly error: unknown };

/** How a hold ends. `nested`: the call that acquired it has ended, and a nested call keeps it held. */
export type HoldEnd = LockLostError | 'nested' | { readonly result: 'released' | 'pending'; readonly failed: boolean };

/** Runs one acquisition under its trace. */
export type Traced = <T>(
  subject: LockEvent,
  signal: AbortSignal | undefined,
  acquire: (trace: AcquireTrace) => Promise<T>,
) => Promise<T>;

/**
 * Learns what happens to the callers of one provider, and puts it into words: events, traces, logs, and the errors of callers that leave without a lock.
 *
 * The core neither knows nor waits for what an observer makes of that. All but {@link nests} and {@link left} change nothing.
 */
export interface LockObserver {
  /**
   * A call will wait for these keys, one after the other, while it holds `outer`, innermost first.
   *
   * @param around the holder for which the call will wait, in whose async context it runs
   * @throws where the application wants such a call to fail
   */
  nests(keys: readonly string[], plan: LockPlan, outer: readonly GrantedLock[], around?: Holder): void;
  /** `undefined` unless acquisitions are traced, so that nothing is built for that. */
  readonly traced: Traced | undefined;
  /** A waiter waits: for others in the queue, or its request at the backend, for the lock or for what `instead` names. */
  waits(waiter: Waiter, instead: LockError | undefined): void;
  /** A waiter has become a holder. */
  entered(waiter: Waiter, holder: Holder): void;
  /** A waiter leaves without the lock. @returns the error that its call gets */
  left(waiter: Waiter, refusal: Refusal): unknown;
  /** A lock will be made of a hold. In the async context of its call. */
  holds(holder: Holder): void;
  /** The grant of a holder was renewed, or could not be. */
  renewed(holder: Holder, isAnswered: boolean): void;
  ended(holder: Holder, end: HoldEnd): void;
  /** The provider closes. */
  stop(): void;
}
