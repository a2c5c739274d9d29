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

/** The locks that a caller holds while it waits for one more key. */
export interface HeldMeanwhile {
  /** The locks around the call. While one of them is held, a drain waits instead of dismissing the waiter. */
  readonly outer: readonly GrantedLock[];
  /** The holder of the same key in the caller's async context, if the lock was not passed explicitly: the caller may wait for itself. */
  readonly around: Holder | undefined;
  /** The keys that have been acquired for the same lock. */
  readonly acquired: readonly Holder[];
}

/**
 * A call that waits in the queue of one key, until it is let in or refused. The {@link Holder} that it becomes does not refer to it, because a waiter
 * keeps the async context of the previous lock alive. The backend does not know waiters.
 *
 * A waiter is late if its deadline has passed, which with `wait: 0` is true from the start. It then waits only for the answer that is in flight.
 */
export class Waiter {
  // Position in the queue. Only `WaiterList` writes these, except for the initial `isLate`.
  next: Waiter | undefined;
  previous: Waiter | undefined;
  /** The waiter's number among all that joined the queue. */
  arrival = 0;
  isQueued = false;
  isLate: boolean;
  /** The trace of the acquisition, if it is traced. */
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
    /** When the call began, on the monotonic clock. */
    readonly startedAt: number,
    /** When the waiter joined the queue of this key; later than `startedAt` for the second of several keys. */
    readonly since: number,
    private readonly signal: AbortSignal | undefined,
    readonly meanwhile: HeldMeanwhile | undefined,
  ) {
    this.isLate = plan.settings.wait <= 0;
  }

  /** When the wait ends, on the monotonic clock. */
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

  /** The holder that the waiter became, while it holds. */
  get holder(): Holder | undefined {
    return this.#holder?.isHolding === true ? this.#holder : undefined;
  }

  get isUnderLock(): boolean {
    return this.meanwhile?.outer.some((lock) => lock.isHeld()) === true;
  }

  /**
   * Joins the queue. Resolves when the lock is held.
   *
   * @param trace of the acquisition
   * @param after if set, the waiter joins before its turn, which starts with {@link beginTurn}; it is refused with NOT_ASKED unless `after` is granted
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
    // Added after joining, so that a signal that has aborted in the meantime removes the waiter.
    if (signal && this.isQueued) leaveOnAbort(signal, this);
    return outcome;
  }

  /** Starts the turn of a waiter that joined early. */
  beginTurn(trace: AcquireTrace | undefined): void {
    this.trace = trace;
    this.queue.onTurn(this);
  }

  /** Removes the waiter, on behalf of the application or its key chain. */
  dismiss(error: unknown): void {
    this.queue.leave(this, { why: 'dismissed', error });
  }

  /** Removes the waiter, because its signal aborted. */
  leave(): void {
    this.dismiss(this.signal?.reason);
  }

  /** Reports that the waiter waits: in the queue, or at the backend for the lock or for what `instead` names. */
  waits(instead?: LockError): void {
    if (!this.isLate) this.plan.core.observer.waits(this, instead);
  }

  /** Rejects the call. The waiter has left its queue. */
  refuse(refusal: Refusal): void {
    const error = this.plan.core.observer.left(this, refusal);
    if (this.signal) forgetAbort(this.signal, this);
    this.#reject?.(error);
  }

  /** Resolves the call with a holder under this grant. The waiter has left its queue. */
  enter(grant: HeldGrant, now: number): void {
    const holder = new Holder(grant, this.plan, now);
    grant.add(holder);
    this.#holder = holder;
    if (this.signal) forgetAbort(this.signal, this);
    this.plan.core.observer.entered(this, holder);
    this.#resolve?.(holder);
  }

  /** Calls {@link KeyQueue.onTime} at `time`, on the monotonic clock. */
  wakeAt(time: number): void {
    this.clearTimer();
    const { clock } = this.plan.core;
    const wake = (): void => {
      this.#timer = undefined;
      this.queue.onTime(this);
    };
    // Keeps the process alive, because a caller awaits the outcome, even if it only waits for a lease of its own process to expire.
    this.#timer = clock.setTimer(wake, Math.max(0, Math.ceil(time - clock.now())), true);
  }

  clearTimer(): void {
    if (this.#timer === undefined) return;
    this.plan.core.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }
}
