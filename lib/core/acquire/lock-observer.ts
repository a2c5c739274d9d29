import type { LockError, LockLostError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { AcquireTrace } from '../../api/lock-traces.js';
import type { GrantedLock } from '../hold/granted-lock.js';
import type { Holder } from '../hold/holder.js';
import type { KeyRequest } from './key-request.js';
import type { LockPlan } from './lock-plan.js';
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

/**
 * Learns what happens to the callers of one provider, and puts it into words: events, traces, logs, and the errors of callers that leave without a lock.
 *
 * The core neither knows nor waits for what it makes of that. All but {@link nests} and {@link left} change nothing.
 */
export interface LockObserver {
  /**
   * A call will wait for these keys, one after the other, while it holds `outer`, innermost first.
   *
   * @throws where the application wants such a call to fail
   */
  nests(keys: readonly string[], plan: LockPlan, outer: readonly GrantedLock[]): void;
  /** A call will wait for the holder in whose async context it runs. */
  waitsForItself(wanted: LockEvent, around: Holder): void;

  /** Whether acquisitions are traced: asked before anything is built for that. */
  readonly traces: boolean;
  /** Runs one acquisition under its trace. */
  traced<T>(
    subject: LockEvent,
    signal: AbortSignal | undefined,
    acquire: (trace: AcquireTrace) => Promise<T>,
  ): Promise<T>;
  /** The waiter has come to its queue, or has its turn there, in this acquisition. */
  comes(waiter: Waiter, trace: AcquireTrace): void;

  /** It waits: for others in the queue, or its request at the backend, for the lock or for what `instead` names. */
  waits(waiter: Waiter, instead: LockError | undefined): void;
  /** It holds from now on. */
  entered(waiter: Waiter, holder: Holder): void;
  /** It leaves without the lock. Answers the error that its call gets. */
  left(waiter: Waiter, refusal: Refusal): unknown;

  /** A lock will be made of it. In the async context of its call. */
  holds(holder: Holder): void;
  /** The grant was renewed by which it holds, or could not be. */
  renewed(holder: Holder, isAnswered: boolean): void;
  /** The call that acquired it has ended, and a nested one keeps it held. */
  outlives(holder: Holder): void;
  /** It was released. `pending`: the release was not answered yet. */
  released(holder: Holder, result: 'released' | 'pending', failed: boolean): void;
  /** It was lost, before its release or by it. */
  lost(holder: Holder, error: LockLostError): void;

  /** The provider closes. */
  stop(): void;
}
