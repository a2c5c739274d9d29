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
import { holderBeside, holderInWords, type KnownHolding, lockHolder } from './holder-report.js';
import { Labels } from './labels.js';
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

/** A caller with a shorter `wait`, in ms, leaves by itself before a deadlock is proved. */
const WATCHED_FROM = 3_000;

/** What is kept of a waiter that does wait, and of a holder that is traced. The others have none. */
interface Notes {
  /** It looks for the label of the holder if its wait is long. */
  isTraced?: boolean;
  /** It is known to wait. */
  isReported?: boolean;
  /** The holder that kept it out when it began to wait, or `null` if that was not known. `undefined` if it has not waited for a lock. */
  found?: Holding | null;
  endTrace?: EndTrace | undefined;
}

/** What all providers of one application share. */
export interface SharedInsight {
  readonly contention: Contention;
  readonly order: LockOrder;
  /** The methods, or keys of calls, that wait for their own holder. A wait without end shows nothing else of that. */
  readonly warnedOf: WarnedPlaces;
}

/** Explains what happens to the callers of one provider: to the application that listens, to operators, and to callers that get no lock. */
export class LockInsight implements LockObserver {
  readonly #labels: Labels;
  /** Where the backend has a board for it. */
  readonly #deadlocks: DeadlockWatch | undefined;
  #hasWarnedOfOutliving = false;

  constructor(
    private readonly core: ProviderCore,
    private readonly shared: SharedInsight,
  ) {
    const { backend, clock, logger } = core;
    this.#labels = new Labels(backend, clock);
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
        `${nestedOrQueued(subject)} (Warned once for each method, or key of a call.)`,
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
      // If the wait is long, the subscriber learns the label of the holder.
      notes.isTraced = true;
      this.#labels.awaited(waiter, onHolder);
    }
    if (instead === undefined && notes.found === undefined) notes.found = holderBeside(waiter, this.core);
    if (notes.isReported) return;
    notes.isReported = true;
    if (events.has('waiting')) events.publish('waiting', waiter.subject);
    this.#mayBeInDeadlock(waiter);
  }

  #mayBeInDeadlock(waiter: Waiter): void {
    if (this.#deadlocks === undefined || waiter.meanwhile === undefined) return;
    const isLong = waiter.deadline - waiter.startedAt >= WATCHED_FROM;
    // A caller that a limit keeps out waits for any of several holders.
    if (isLong && waiter.terms.limited === undefined) this.#deadlocks.watch(waiter);
  }

  entered(waiter: Waiter, holder: Holder): void {
    const { events } = this.core;
    const notes = notesOf(waiter);
    if (notes !== undefined) {
      this.shared.contention.granted(waiter, notes.found, holder);
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
        return this.#busyError(waiter, holderBeside(waiter, this.core, refusal.request));
      case 'unavailable':
        return unavailableError(waiter.subject, refusal.cause);
      case 'full':
        return capacityError(waiter.subject, waiter.queue.size);
      case 'dismissed':
        if (notesOf(waiter)?.isReported) this.#waitedInVain(waiter, holderBeside(waiter, this.core));
        return refusal.error;
      case 'failed':
        return refusal.error;
    }
  }

  #busyError(waiter: Waiter, holding: KnownHolding | null): LockError {
    const { subject, startedAt, meanwhile } = waiter;
    const now = this.#waitedInVain(waiter, holding);
    const heldBy = this.#publishBusy(waiter, holding, now);
    const around = meanwhile?.around;
    const own = around?.isValid(now) === true ? around.subject : undefined;
    // For a pool, whose holders never re-enter, it is no mistake that its own process holds it.
    const other = holding?.isHere === true && waiter.terms.limited === undefined ? 'this process' : undefined;
    const inWords = holding && holderInWords(holding, startedAt, now);
    // The number that the user gave, not what a timer made of it.
    const waited = Math.min(now - startedAt, waiter.terms.wait);
    const error = busyError(subject, waited, own ?? other, heldBy, inWords);
    // A call that does not wait may ask whether its own caller holds the key.
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

  /** Answers the time. */
  #waitedInVain(waiter: Waiter, holding: KnownHolding | null): number {
    const now = this.core.clock.now();
    this.shared.contention.ended(waiter, notesOf(waiter)?.found, holding, now);
    return now;
  }

  /** The callers of this cycle wait for each other, and this one is sent away. Answers the error that it gets. */
  #refuseDeadlock(waiter: Waiter, cycle: readonly DeadlockMember[]): LockDeadlockError {
    const now = this.core.clock.now();
    this.#publishBusy(waiter, holderBeside(waiter, this.core), now);
    const error = deadlockError(waiter.subject, Math.round(now - waiter.startedAt), cycle);
    waiter.dismiss(error);
    return error;
  }

  /** Its wait is over. */
  #forget(waiter: Waiter, { isTraced }: Notes): void {
    waiter.notes = undefined;
    if (isTraced) this.#labels.forget(waiter);
    if (waiter.meanwhile !== undefined) this.#deadlocks?.forget(waiter);
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
    // Its promise keeps the async context of the holder, and with it the locks before.
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
