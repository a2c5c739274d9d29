import type { Timer } from '../../api/clock.js';
import type { LockError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { AcquireTrace } from '../../api/lock-traces.js';
import type { GrantedLock } from '../hold/granted-lock.js';
import type { HeldGrant } from '../hold/held-grant.js';
import { Holder } from '../hold/holder.js';
import { forgetAbort, leaveOnAbort } from '../toolkit/abort-listeners.js';
import type { KeyQueue } from './key-queue.js';
import type { KeyRequest } from './key-request.js';
import type { Refusal } from './lock-observer.js';
import { type LockPlan, subjectOf } from '../plan/lock-plan.js';
import type { LockSettings } from '../plan/lock-settings.js';

/** The locks that a caller holds while it waits for another key. */
export interface HeldWhileWaiting {
  /** The locks around the call. While one of them is held, a drain waits instead of dismissing the waiter. */
  readonly outer: readonly GrantedLock[];
  /**
   * The holder of the same key in the caller's async context, if that lock was not passed explicitly. The caller may be
   * waiting for itself.
   */
  readonly around: Holder | undefined;
  /** The keys already acquired for the same lock. */
  readonly acquired: readonly Holder[];
}

/**
 * A call that waits in a key's queue until it gets the lock or is refused. On success, a {@link Holder} replaces it.
 * The holder must not refer to the waiter, because a waiter retains the async context of the previous
 * lock. The backend knows nothing about waiters.
 *
 * A waiter is late if its deadline has passed; with `wait: 0` it is late from the start. A late waiter waits only for
 * the pending response.
 */
export class Waiter {
  // The waiter's queue position. Only `WaiterList` writes these fields, except for the initial `isLate`.
  next: Waiter | undefined;
  previous: Waiter | undefined;
  /** The waiter's sequence number in its queue. */
  arrival = 0;
  isQueued = false;
  isLate: boolean;
  trace: AcquireTrace | undefined;
  /** The observer's notes. */
  notes: unknown;
  #timer: Timer | undefined;
  #resolve: ((holder: Holder) => void) | undefined;
  #reject: ((error: unknown) => void) | undefined;
  #holder: Holder | undefined;

  constructor(
    readonly queue: KeyQueue,
    private readonly plan: LockPlan,
    /** When the call started. */
    readonly startedAt: number,
    /** When the call reached this key; later than `startedAt` for all but the first of several keys. */
    readonly since: number,
    private readonly signal: AbortSignal | undefined,
    readonly heldLocks: HeldWhileWaiting | undefined,
  ) {
    this.isLate = plan.settings.wait <= 0;
  }

  /** When the wait times out. */
  get deadline(): number {
    return this.startedAt + this.plan.settings.wait;
  }

  get key(): string {
    return this.queue.key;
  }

  get provider(): string {
    return this.plan.core.name;
  }

  get terms(): LockSettings {
    return this.plan.settings;
  }

  /** The subject of events and messages about this waiter. */
  get subject(): LockEvent {
    return subjectOf(this.queue.key, this.plan);
  }

  /** The waiter's holder, while it holds the key. */
  get holder(): Holder | undefined {
    return this.#holder?.isHolding === true ? this.#holder : undefined;
  }

  get isUnderLock(): boolean {
    return this.heldLocks?.outer.some((lock) => lock.isHeld()) === true;
  }

  /**
   * Joins the queue. Resolves once the caller holds the lock.
   *
   * @param after makes the waiter join before its turn. The turn starts with {@link beginTurn}. If `after` is not
   * granted, the waiter is refused with NOT_ASKED
   * @throws LockCapacityError when the queue is full
   */
  acquire(trace?: AcquireTrace, after?: KeyRequest): Promise<Holder> {
    const { queue, signal } = this;
    this.trace = trace;
    if (queue.isFull) throw this.plan.core.observer.left(this, { why: 'full' });
    const outcome = new Promise<Holder>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    if (after === undefined) queue.add(this);
    else queue.addBehind(after, this);
    // Subscribe after joining, so that a signal that has aborted in the meantime removes the waiter.
    if (signal && this.isQueued) leaveOnAbort(signal, this);
    return outcome;
  }

  /** Starts an early waiter's turn. */
  beginTurn(trace: AcquireTrace | undefined): void {
    this.trace = trace;
    this.queue.onTurn(this);
  }

  /** Removes the waiter on behalf of the application or its key chain. */
  dismiss(error: unknown): void {
    this.queue.leave(this, { why: 'dismissed', error });
  }

  /** Removes the waiter because its signal aborted. */
  leave(): void {
    this.dismiss(this.signal?.reason);
  }

  /**
   * Reports that the waiter is waiting in the queue or at the backend, for the lock or for whatever `instead`
   * specifies.
   */
  waits(instead?: LockError): void {
    if (!this.isLate) this.plan.core.observer.waits(this, instead);
  }

  /** Rejects the call. The waiter must have left its queue. */
  refuse(refusal: Refusal): void {
    const error = this.plan.core.observer.left(this, refusal);
    if (this.signal) forgetAbort(this.signal, this);
    this.#reject?.(error);
  }

  /** Resolves the call with a holder under this grant. The waiter must have left its queue. */
  enter(grant: HeldGrant, now: number): void {
    const holder = new Holder(grant, this.plan, now);
    grant.add(holder);
    this.#holder = holder;
    if (this.signal) forgetAbort(this.signal, this);
    this.plan.core.observer.entered(this, holder);
    this.#resolve?.(holder);
  }

  /** Calls {@link KeyQueue.onTime} at `time`. */
  wakeAt(time: number): void {
    this.clearTimer();
    const { clock } = this.plan.core;
    const wake = (): void => {
      this.#timer = undefined;
      this.queue.onTime(this);
    };
    // Keeps the process alive because a caller awaits the outcome. Nothing else may do so, for example, if this process
    // holds the lock itself.
    this.#timer = clock.setTimer(wake, Math.max(0, Math.ceil(time - clock.now())), true);
  }

  clearTimer(): void {
    if (this.#timer === undefined) return;
    this.plan.core.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }
}
