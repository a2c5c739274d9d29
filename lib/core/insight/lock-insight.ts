import type { LockDeadlockError, LockError } from '../../api/errors.js';
import type { DeadlockMember } from '../../api/deadlock.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { Holding } from '../../api/lock-provider.js';
import type { LockHolder } from '../../api/lock-holder.js';
import type { HoldEnd, LockObserver, Refusal, Traced } from '../acquire/lock-observer.js';
import { type LockPlan, subjectOf } from '../plan/lock-plan.js';
import type { Waiter } from '../acquire/waiter.js';
import { acquireChannel, holdChannel } from '../events/channels.js';
import { nameOf } from '../events/subject.js';
import type { GrantedLock } from '../hold/granted-lock.js';
import type { Holder } from '../hold/holder.js';
import { markReported } from '../hold/lost-error.js';
import type { ProviderCore } from '../provider-core.js';
import type { WarnedPlaces } from '../toolkit/warned-places.js';
import type { Contention } from './contention.js';
import { DeadlockWatch } from './deadlock-watch.js';
import { blockingHolder, holderInWords, type KnownHolding, lockHolder } from './holder-report.js';
import { TraceLabels } from './trace-labels.js';
import type { LockOrder } from './lock-order.js';
import {
  busyError,
  capacityError,
  deadlockError,
  isSelfWait,
  nestedOrQueued,
  ownHolder,
  unavailableError,
} from './refusals.js';
import { type EndTrace, traceAcquisition, traceHold } from './tracing.js';

/** A caller with a shorter `wait` times out before a deadlock can be proven. */
const MIN_WATCHED_WAIT_MS = 3_000;

/** The observer's notes on a traced holder or on a waiter that had to wait. Other callers have no notes. */
interface Notes {
  /** Whether {@link TraceLabels} knows the waiter. */
  isTraced?: boolean;
  /** Whether the wait was reported. */
  isReported?: boolean;
  /**
   * The holder at the start of the wait, or `null` if it was unknown. `undefined` if the caller did not wait for a
   * lock.
   */
  firstSeen?: Holding | null;
  endTrace?: EndTrace | undefined;
}

/** The observations shared by all of an application's providers. */
export interface SharedInsight {
  readonly contention: Contention;
  readonly order: LockOrder;
  /**
   * The methods (or, for direct calls, the keys) reported as waiting for their own holder. With an infinite wait, only
   * this warning reveals the problem.
   */
  readonly warnedOf: WarnedPlaces;
}

/** Reports one provider's lock activity to listeners, operators, and callers that don't get the lock. */
export class LockInsight implements LockObserver {
  readonly #labels: TraceLabels;
  /** Undefined if the backend lacks {@link LockBackend.waits}. */
  readonly #deadlocks: DeadlockWatch | undefined;
  #hasWarnedOfOutliving = false;

  constructor(
    private readonly core: ProviderCore,
    private readonly shared: SharedInsight,
  ) {
    const { backend, clock, logger } = core;
    this.#labels = new TraceLabels(backend, clock);
    const refuse = (waiter: Waiter, cycle: readonly DeadlockMember[]) => this.#refuseDeadlock(waiter, cycle);
    this.#deadlocks =
      backend.waits && new DeadlockWatch(backend.waits, clock, logger, core.instance, core.name, refuse);
  }

  nests(keys: readonly string[], plan: LockPlan, outer: readonly GrantedLock[], around?: Holder): void {
    const { order } = this.shared;
    if (around !== undefined) this.#warnOfOwnHolder(subjectOf(around.key, plan), around);
    else if (keys.length > 1) order.together(keys, plan, outer);
    else order.under(outer, subjectOf(keys[0] ?? '', plan));
  }

  #warnOfOwnHolder(wanted: LockEvent, { subject }: Holder): void {
    if (!this.shared.warnedOf.add(wanted.method ?? wanted.key)) return;
    this.core.logger.warn(
      `${nameOf(wanted)} is requested in the async context of ${ownHolder(subject)}, but that lock was not passed explicitly, so the call waits until it is released. ` +
        `${nestedOrQueued(subject)} (Warned once per method or key.)`,
    );
  }

  get traced(): Traced | undefined {
    return acquireChannel.hasSubscribers ? traceAcquisition : undefined;
  }

  waits(waiter: Waiter, instead: LockError | undefined): void {
    const { events } = this.core;
    const notes = writableNotesOf(waiter);
    const { onHolder } = waiter.trace ?? {};
    if (onHolder !== undefined && !notes.isTraced) {
      // If the wait is long, the subscriber gets the holder's label.
      notes.isTraced = true;
      this.#labels.awaited(waiter, onHolder);
    }
    if (instead === undefined && notes.firstSeen === undefined) notes.firstSeen = blockingHolder(waiter, this.core);
    if (notes.isReported) return;
    notes.isReported = true;
    // Before the event, because a listener may end the wait.
    this.#watchForDeadlock(waiter);
    if (events.has('waiting')) events.publish('waiting', waiter.subject);
  }

  #watchForDeadlock(waiter: Waiter): void {
    if (this.#deadlocks === undefined || waiter.heldLocks === undefined) return;
    const isLong = waiter.deadline - waiter.startedAt >= MIN_WATCHED_WAIT_MS;
    // A caller waiting for a limited lock needs only one holder to release, so it is never part of a cycle.
    if (isLong && waiter.terms.limited === undefined) this.#deadlocks.watch(waiter);
  }

  entered(waiter: Waiter, holder: Holder): void {
    const { events } = this.core;
    const notes = notesOf(waiter);
    if (notes !== undefined) {
      this.shared.contention.granted(waiter, notes.firstSeen, holder);
      this.#forget(waiter, notes);
    }
    if (!events.has('acquired')) return;
    const { fencingToken, grantedAt } = holder;
    const waited = Math.round(grantedAt - waiter.startedAt);
    events.publish('acquired', { ...waiter.subject, waited, fencingToken });
  }

  left(waiter: Waiter, refusal: Refusal): unknown {
    const error = this.#errorOf(waiter, refusal);
    const notes = notesOf(waiter);
    if (notes !== undefined) this.#forget(waiter, notes);
    return error;
  }

  #errorOf(waiter: Waiter, refusal: Refusal): unknown {
    switch (refusal.why) {
      case 'busy':
        return this.#busyError(waiter, blockingHolder(waiter, this.core, refusal.request));
      case 'unavailable':
        return unavailableError(waiter.subject, refusal);
      case 'full':
        return capacityError(waiter.subject, waiter.queue.size);
      case 'dismissed':
        if (notesOf(waiter)?.isReported) this.#recordFailedWait(waiter, blockingHolder(waiter, this.core));
        return refusal.error;
      case 'failed':
        return refusal.error;
    }
  }

  #busyError(waiter: Waiter, holding: KnownHolding | null): LockError {
    const { subject, startedAt, heldLocks } = waiter;
    const now = this.#recordFailedWait(waiter, holding);
    const heldBy = this.#publishBusy(waiter, holding, now);
    const around = heldLocks?.around;
    const own = around?.isValid(now) === true ? around.subject : undefined;
    // A limited lock's holders never re-enter it, so it is normal for some to be in the caller's own process.
    const other = holding?.isHere === true && waiter.terms.limited === undefined ? 'this process' : undefined;
    const inWords = holding && holderInWords(holding, startedAt, now);
    // Capped at the user's `wait`, even if the timer fired late.
    const waited = Math.min(now - startedAt, waiter.terms.wait);
    const error = busyError(subject, waited, own ?? other, heldBy, inWords);
    // With `wait: 0`, the call might just be checking whether its own caller holds the key.
    if (isSelfWait(error) && waiter.terms.wait > 0) {
      this.core.logger.error(error.message);
      markReported(error);
    }
    return error;
  }

  #publishBusy({ subject, startedAt }: Waiter, holding: KnownHolding | null, now: number): LockHolder | null {
    const { clock, events } = this.core;
    const heldBy = holding && lockHolder(holding, now, clock.wallTime());
    events.publish('busy', { ...subject, waited: Math.round(now - startedAt), heldBy });
    return heldBy;
  }

  /** Returns the current time. */
  #recordFailedWait(waiter: Waiter, holding: KnownHolding | null): number {
    const now = this.core.clock.now();
    this.shared.contention.ended(waiter, notesOf(waiter)?.firstSeen, holding, now);
    return now;
  }

  /** Rejects the victim of a deadlock. Returns the error. */
  #refuseDeadlock(waiter: Waiter, cycle: readonly DeadlockMember[]): LockDeadlockError {
    const now = this.core.clock.now();
    this.#publishBusy(waiter, blockingHolder(waiter, this.core), now);
    const error = deadlockError(waiter.subject, Math.round(now - waiter.startedAt), cycle);
    waiter.dismiss(error);
    return error;
  }

  #forget(waiter: Waiter, { isTraced }: Notes): void {
    waiter.notes = undefined;
    if (isTraced) this.#labels.forget(waiter);
    if (waiter.heldLocks !== undefined) this.#deadlocks?.forget(waiter);
  }

  holds(holder: Holder): void {
    if (!holdChannel.hasSubscribers || !holder.isHolding) return;
    const { end, traceparent } = traceHold(holder.subject, holder.fencingToken);
    writableNotesOf(holder).endTrace = end;
    if (traceparent !== undefined) this.#labels.held(holder, traceparent);
  }

  renewed(holder: Holder, isAnswered: boolean): void {
    const { events, clock } = this.core;
    if (isAnswered && notesOf(holder) !== undefined) this.#labels.renewed(holder);
    const name = isAnswered ? 'renewed' : 'renewal-failed';
    if (!events.has(name)) return;
    events.publish(name, { ...holder.subject, remaining: Math.round(holder.remaining(clock.now())) });
  }

  ended(holder: Holder, end: HoldEnd): void {
    const { events, logger } = this.core;
    if (end === 'nested') {
      this.#warnOfOutliving(holder);
      return;
    }
    this.#endTrace(holder, end);
    if (!('result' in end)) {
      events.publish('lost', { ...holder.subject, held: this.#heldFor(holder), reason: end.reason });
      logger.warn(end.message);
      markReported(end);
    } else if (end.result === 'pending') events.publish('release-pending', holder.subject);
    else if (events.has('released')) events.publish('released', { ...holder.subject, held: this.#heldFor(holder) });
  }

  #warnOfOutliving({ subject }: Holder): void {
    if (this.#hasWarnedOfOutliving) return;
    this.#hasWarnedOfOutliving = true;
    this.core.logger.warn(
      `${nameOf(subject)} is still held although the call that acquired it has ended, because a nested call for the same key is still running. ` +
        'Await nested calls, or start work that outlives the call with detached(). (Warned once.)',
    );
  }

  #heldFor({ grantedAt }: Holder): number {
    return Math.round(this.core.clock.now() - grantedAt);
  }

  #endTrace(holder: Holder, end: Exclude<HoldEnd, 'nested'>): void {
    const endTrace = notesOf(holder)?.endTrace;
    if (endTrace === undefined) return;
    // The trace's promise retains the holder's async context and, with it, previous locks.
    holder.notes = undefined;
    this.#labels.forget(holder);
    if ('result' in end) endTrace(end.result, end.failed);
    else endTrace(end, false);
  }

  stop(): void {
    this.#deadlocks?.stop();
    this.#labels.stop();
  }
}

function notesOf({ notes }: Waiter | Holder): Notes | undefined {
  return notes as Notes | undefined;
}

function writableNotesOf(noted: Waiter | Holder): Notes {
  return notesOf(noted) ?? (noted.notes = {});
}
