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

/** The locks of an owner while it waits for one more key. */
export interface HeldMeanwhile {
  /** The locks around the call. As long as one of them is held, a drain waits for it instead of sending the waiter away. */
  readonly outer: readonly GrantedLock[];
  /** The holder of the key in its own async context, which it has not in hand: it may wait for itself. */
  readonly around: Holder | undefined;
  /** The keys that were acquired so far for the same lock. */
  readonly acquired: readonly Holder[];
}

/**
 * One call that waits in the queue of one key. It ends when it is let in or refused; a {@link Holder} follows it, which does not know it, because what
 * a waiter has would keep the async context of the lock before. The backend never hears of it.
 *
 * It is late when its deadline has passed, as it has from the beginning with `wait: 0`. Then it waits only for the answer that is in flight.
 */
export class Waiter {
  // Its place in the queue. Only the `WaiterList` writes these, but for whether it is late from the beginning.
  next: Waiter | undefined;
  previous: Waiter | undefined;
  /** Its number among all that came to the queue. */
  arrival = 0;
  isQueued = false;
  isLate: boolean;
  /** The trace of its acquisition, where that is traced. */
  trace: AcquireTrace | undefined;
  /** The observer's own. */
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
    /** When it came to the queue of this key: later than that for the second of several keys. */
    readonly since: number,
    private readonly signal: AbortSignal | undefined,
    readonly meanwhile: HeldMeanwhile | undefined,
  ) {
    this.isLate = plan.settings.wait <= 0;
  }

  /** When it stops waiting, on the monotonic clock. */
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

  /** The subject of events and messages about it. */
  get subject(): LockEvent {
    return subjectOf(this.queue.key, this.plan);
  }

  /** What it became, if that holds. */
  get holder(): Holder | undefined {
    return this.#holder?.isHolding === true ? this.#holder : undefined;
  }

  get isUnderLock(): boolean {
    return this.meanwhile?.outer.some((lock) => lock.isHeld()) === true;
  }

  /**
   * Comes to its queue. Resolves when it holds.
   *
   * @param trace of its acquisition
   * @param after it comes before its turn, which begins with {@link beginTurn}, and is refused with NOT_ASKED unless this is granted
   * @throws LockCapacityError when too many wait there already
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
    // Behind that, so that a signal which has aborted meanwhile takes it out.
    if (signal && this.isQueued) leaveOnAbort(signal, this);
    return outcome;
  }

  /** It has its turn, after it has come before that. */
  beginTurn(trace: AcquireTrace | undefined): void {
    this.trace = trace;
    this.queue.onTurn(this);
  }

  /** The application sends it away, or its chain. */
  dismiss(error: unknown): void {
    this.queue.leave(this, { why: 'dismissed', error });
  }

  /** Its signal has aborted. */
  leave(): void {
    this.dismiss(this.signal?.reason);
  }

  /** It waits: for others in the queue, or its request at the backend, for the lock or for what `instead` names. */
  waits(instead?: LockError): void {
    if (!this.isLate) this.plan.core.observer.waits(this, instead);
  }

  /** It has left its queue without the lock. */
  refuse(refusal: Refusal): void {
    const error = this.plan.core.observer.left(this, refusal);
    if (this.signal) forgetAbort(this.signal, this);
    this.#reject?.(error);
  }

  /** It has left its queue, and holds by this grant. */
  enter(grant: HeldGrant, now: number): void {
    const holder = new Holder(grant, this.plan, now);
    grant.add(holder);
    this.#holder = holder;
    if (this.signal) forgetAbort(this.signal, this);
    this.plan.core.observer.entered(this, holder);
    this.#resolve?.(holder);
  }

  /** Looks again at `time`, on the monotonic clock. */
  wakeAt(time: number): void {
    this.clearTimer();
    const { clock } = this.plan.core;
    const wake = (): void => {
      this.#timer = undefined;
      this.queue.onTime(this);
    };
    // Keeps the process alive, because a caller awaits the end, also where only the lease of its own process has to end.
    this.#timer = clock.setTimer(wake, Math.max(0, Math.ceil(time - clock.now())), true);
  }

  clearTimer(): void {
    if (this.#timer === undefined) return;
    this.plan.core.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }
}
