import type { DeadlockMember } from '../../api/deadlock.js';
import {
  type LockDeadlockError,
  type LockError,
  type LockLostError,
  LockUnavailableError,
  type LossReason,
} from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { AcquireTrace } from '../../api/lock-traces.js';
import type { Holding, ReleaseOutcome } from '../../api/lock-provider.js';
import type { ReleaseResult } from '../../api/lock.js';
import { type LockOrigin, nameOf } from '../events/subject.js';
import { type EndTrace, traceHold } from '../events/tracing.js';
import { lostError, markReported } from '../hold/lost-error.js';
import type { ProviderCore } from '../provider-core.js';
import { forgetAbort, leaveOnAbort } from '../toolkit/abort-listeners.js';
import { detached } from '../toolkit/detached.js';
import { Caller, type CallerQueue } from './caller.js';
import type { WaitingCaller } from './deadlock-watch.js';
import { grantsOf, type HeldMeanwhile, type OuterLock } from './held-meanwhile.js';
import type { KnownHolding } from './holder-report.js';
import type { KeyRequest } from './key-request.js';
import type { LockSettings } from './lock-settings.js';
import { busyRefusal, deadlockRefusal } from './busy-refusal.js';
import { capacityError, unavailableError } from './refusals.js';

/** A caller with a shorter `wait`, in ms, leaves by itself before a deadlock is proved. */
const WATCHED_FROM = 3_000;

/** Called once when a lock is lost. */
export type LossListener = (error: LockLostError) => void;

const NONE: readonly LocalCaller[] = [];

/**
 * One key of one owner in this application: a caller in the queue of the key, and then the record that a lock and its nested entries share,
 * from its grant to its last release.
 *
 * Validity is computed from the clock. The watchdog's timer only makes a loss known earlier: after a blocked event loop it is late, and then
 * {@link expire}, which precedes each question of a user, finds the loss. Once lost, it stays lost.
 */
export class LocalCaller extends Caller<KeyRequest> implements WaitingCaller {
  #phase: 'waiting' | 'holding' | 'released' | 'lost' | 'refused' = 'waiting';
  // While it waits. What is kept longer would keep the async context of the lock before.
  #resolve: ((holder: this) => void) | undefined;
  #reject: ((error: unknown) => void) | undefined;
  #meanwhile: HeldMeanwhile | undefined;
  #isReported = false;
  #found: Holding | null | undefined;
  // From its grant on.
  #request: KeyRequest | undefined;
  #holder = '';
  #fencingToken: bigint | null = null;
  #grantedAt = Infinity;
  #endsAt = Infinity;
  #maxHold = Infinity;
  #entries = 1;
  /** The lock that it was acquired for: the first entry. */
  #acquiredBy: object | undefined;
  #endTrace: EndTrace | undefined;
  #listeners: Set<LossListener> | undefined;
  #lostError: LockLostError | undefined;
  #releaseError: LockLostError | undefined;

  constructor(
    queue: CallerQueue,
    private readonly core: ProviderCore,
    settings: LockSettings,
    private readonly origin: LockOrigin,
    startedAt: number,
    since: number,
    private signal: AbortSignal | undefined,
  ) {
    super(settings, startedAt, since, startedAt + settings.wait, queue, core.clock);
  }

  get key(): string {
    return this.queue.key;
  }

  get method(): string | null {
    return this.origin.method;
  }

  get subject(): LockEvent {
    const { method, template } = this.origin;
    return { key: this.queue.key, provider: this.core.name, mode: this.terms.mode, method, template };
  }

  // While it waits.

  /** The caller runs under these locks. See {@link HeldMeanwhile}. */
  runsUnder(outer: readonly OuterLock[], around: LocalCaller | undefined, acquired = NONE): void {
    this.#meanwhile = { outer, around, acquired };
  }

  /**
   * Comes to its queue. Resolves when it holds.
   *
   * @param after the caller comes before its turn, and is refused with NOT_ASKED unless this is granted
   * @throws LockCapacityError when too many wait there already
   */
  acquire(after?: KeyRequest): Promise<this> {
    const { queue, signal } = this;
    if (queue.isFull) throw capacityError(this.subject, queue.size);
    const outcome = new Promise<this>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    if (after === undefined) queue.add(this);
    else queue.addBehind(after, this);
    // Behind that, so that a signal which has aborted meanwhile takes it out.
    if (signal && this.isQueued) leaveOnAbort(signal, this);
    return outcome;
  }

  /** Its wait, which ends with `outcome`, is traced: if it is long, the subscriber learns the label of the holder. */
  tracedBy({ onHolder }: AcquireTrace, outcome: Promise<this>): void {
    if (onHolder !== undefined && this.isQueued) this.core.labels.awaited(this, this.key, outcome, onHolder);
  }

  /** The caller has its turn, after it has come before that. */
  beginTurn(): void {
    this.queue.onTurn(this);
  }

  get isUnderLock(): boolean {
    return this.#meanwhile?.outer.some((lock) => lock.isHeld()) === true;
  }

  get meanwhile(): HeldMeanwhile | undefined {
    return this.#meanwhile;
  }

  grantsOfOwner(now: number): ReadonlyMap<string, string> {
    return grantsOf(this.#meanwhile, this.core.name, this.key, now);
  }

  dismiss(error: unknown): void {
    if (this.#isReported) this.#giveUp();
    this.queue.leave(this, error);
  }

  /** Its signal has aborted. */
  leave(): void {
    if (this.#isReported) this.#giveUp();
    this.queue.leave(this, this.signal?.reason);
  }

  #giveUp(): void {
    const { contention, clock } = this.core;
    contention.ended(this, this.queue, this.queue.holdingBeside(this), clock.now());
  }

  /** The holder that kept it out when it began to wait, or `null` if that was not known. `undefined` if it has not waited for a lock. */
  get found(): Holding | null | undefined {
    return this.#found;
  }

  waits(instead?: LockError): void {
    if (this.isLate) return;
    const { events } = this.core;
    if (instead === undefined && this.#found === undefined) this.#found = this.queue.holdingBeside(this);
    if (this.#isReported) return;
    this.#isReported = true;
    if (events.has('waiting')) events.publish('waiting', this.subject);
    if (this.#meanwhile !== undefined) this.#mayBeInDeadlock();
  }

  #mayBeInDeadlock(): void {
    const isLong = this.deadline - this.startedAt >= WATCHED_FROM;
    // A caller that a limit keeps out waits for any of several holders.
    if (isLong && this.terms.limited === undefined) this.core.deadlocks?.watch(this);
  }

  refuseDeadlock(circle: readonly DeadlockMember[]): LockDeadlockError {
    const { core, subject, startedAt } = this;
    const holding = this.queue.holdingBeside(this);
    core.contention.ended(this, this.queue, holding, core.clock.now());
    const error = deadlockRefusal(core, { subject, startedAt, holding }, circle);
    this.queue.leave(this, error);
    return error;
  }

  refuseBusy(holding: KnownHolding | null): void {
    const { core, subject, startedAt } = this;
    if (this.#isReported) core.contention.ended(this, this.queue, holding, core.clock.now());
    const around = this.#meanwhile?.around;
    // For a pool, whose holders never re-enter, it is no mistake that its own process holds it.
    const mayReEnter = this.terms.limited === undefined;
    this.refuse(busyRefusal(core, { subject, startedAt, holding }, { around, mayReEnter }));
  }

  refuseUnavailable(cause: unknown): void {
    this.refuse(unavailableError(this.subject, cause));
  }

  refuse(error: unknown): void {
    const reject = this.#reject;
    this.#settle('refused');
    reject?.(error);
  }

  enter(request: KeyRequest, now: number): void {
    const { events, holders } = this.core;
    if (this.#isReported) this.core.contention.granted(this, this.queue, request, now);
    this.#holder = request.isFirst ? request.id : this.core.random.id();
    this.#request = request;
    this.#fencingToken = request.fencingToken;
    this.#grantedAt = now;
    request.enter(this);
    holders.add();
    const resolve = this.#resolve;
    this.#settle('holding');
    if (events.has('acquired')) {
      events.publish('acquired', {
        ...this.subject,
        waited: Math.round(now - this.startedAt),
        fencingToken: this.#fencingToken,
      });
    }
    resolve?.(this);
  }

  #settle(phase: 'holding' | 'refused'): void {
    this.#phase = phase;
    if (this.#isReported && this.#meanwhile !== undefined) this.core.deadlocks?.forget(this);
    if (this.signal) forgetAbort(this.signal, this);
    this.signal = undefined;
    this.#resolve = undefined;
    this.#reject = undefined;
    this.#meanwhile = undefined;
    this.#found = undefined;
  }

  // From its grant on.

  /** Random id of this hold. */
  get holder(): string {
    return this.#holder;
  }

  get fencingToken(): bigint | null {
    return this.#fencingToken;
  }

  get grantedAt(): number {
    return this.#grantedAt;
  }

  get endsAt(): number {
    return this.#endsAt;
  }

  /** The caller was granted, and has neither ended nor lost it. */
  get isHolding(): boolean {
    return this.#phase === 'holding';
  }

  /** No lock was made of it yet. */
  get isNew(): boolean {
    return this.#acquiredBy === undefined;
  }

  get entries(): number {
    return this.#entries;
  }

  /** The request by which it holds. */
  get request(): KeyRequest {
    if (this.#request === undefined) throw new Error('The caller does not hold yet.');
    return this.#request;
  }

  /** Why it is not held any more, if it was lost. */
  get lostError(): LockLostError | undefined {
    return this.#lostError;
  }

  /** Why its release did not end it as it should have. */
  get releaseError(): LockLostError | undefined {
    return this.#releaseError;
  }

  isValid(now: number): boolean {
    return this.#phase === 'holding' && now < this.#endsAt && this.request.isValid(now);
  }

  /**
   * - `held`: surely ours.
   * - `unverified`: the machine was suspended, and no renewal has answered since. Not yet loss.
   */
  status(now: number): 'held' | 'unverified' | 'over' {
    if (!this.isValid(now)) return 'over';
    return this.request.isVerified() ? 'held' : 'unverified';
  }

  remaining(now: number): number {
    return this.isValid(now) ? Math.min(this.request.held.validUntil, this.#endsAt) - now : 0;
  }

  /** Reports it to the tracing channel, in the async context of its caller. */
  trace(): void {
    if (this.#phase !== 'holding') return;
    const { end, traceparent } = traceHold(this.subject, this.#fencingToken);
    this.#endTrace = end;
    if (traceparent !== undefined) this.core.labels.held(this, this.request, traceparent);
  }

  /** A lock is made of it. */
  use(lock: object): void {
    this.#acquiredBy ??= lock;
    this.request.use();
  }

  /** One more lock of its owner is made of it. */
  reEnter(): void {
    this.#entries += 1;
  }

  /** The hold ends `maxHold` ms after `now`. */
  endAfter(maxHold: number, now: number): void {
    this.#maxHold = maxHold;
    this.#endsAt = now + maxHold;
    this.request.endsAt(this.#endsAt);
    this.core.watchdog.reschedule(this.request);
  }

  /** Renews it now, for `lease` ms from now on. @throws LockLostError; LockUnavailableError without an answer */
  async extend(lease: number): Promise<void> {
    const { request, core, subject } = this;
    request.changeLease(lease);
    const outcome = await core.watchdog.renew(request);
    const now = core.clock.now();
    this.expire(now);
    if (this.#lostError) throw this.#lostError;
    if (outcome !== 'unknown') return;
    throw new LockUnavailableError(
      `${nameOf(subject)} could not be extended: the backend did not answer; it stays held for ${Math.round(this.remaining(now))} ms.`,
      { key: subject.key, provider: subject.provider },
    );
  }

  /** Calls `listener` at the loss, if that has not happened yet. */
  whenLost(listener: LossListener): void {
    if (this.#phase === 'holding') (this.#listeners ??= new Set()).add(listener);
  }

  /** Takes back `whenLost`: one holder may see many nested entries come and go. */
  forget(listener: LossListener): void {
    this.#listeners?.delete(listener);
  }

  renewed(isAnswered: boolean): void {
    const { events, clock } = this.core;
    if (isAnswered) this.core.labels.renewed(this, this.request);
    const name = isAnswered ? 'renewed' : 'renewal-failed';
    if (events.has(name)) events.publish(name, { ...this.subject, remaining: Math.round(this.remaining(clock.now())) });
  }

  /** Loses the hold, if it is over by the clock. */
  expire(now: number): void {
    if (this.#phase !== 'holding') return;
    if (now < this.#endsAt) this.request.expire(now);
    else {
      this.lose('max-hold');
      // Others may still hold by the request. With the last of them the backend gets it back.
      this.request.abandon(this, now);
      this.onLost();
    }
  }

  lose(reason: LossReason, cause?: unknown): void {
    this.#phase = 'lost';
    this.#lostError = lostError(this.subject, reason, cause, this.#maxHold);
    this.core.holders.done();
  }

  onLost(): void {
    const error = this.#lostError;
    if (error === undefined) return;
    this.#reportLoss(error);
    const listeners = [...(this.#listeners ?? [])];
    this.#listeners = undefined;
    // The caller that has found the loss may hold other locks, which a listener must not re-enter.
    for (const listener of listeners) detached(listener, error);
  }

  /**
   * Ends one entry, and the hold with the last one. Resolves to what `answer` makes of the result, in the tick in which that comes.
   *
   * @param failed whether its task failed, so that a transaction below it is rolled back
   * @param lock the lock that this entry is, if one was made
   */
  release<R>(failed: boolean, lock: object | undefined, answer: (result: ReleaseResult) => R): Promise<R> {
    const now = this.core.clock.now();
    this.expire(now);
    this.#entries -= 1;
    if (this.#phase !== 'holding') return Promise.resolve(answer('lost'));
    if (this.#entries > 0) {
      // After a failure the other branches of a Promise.all may well continue, and a handler after the timeout of its request.
      if (lock === this.#acquiredBy && !failed) this.#warnOfOutliving();
      return Promise.resolve(answer('nested'));
    }
    this.#phase = 'released';
    this.#listeners = undefined;
    const { request } = this;
    return request.release(this, { keepUntil: request.keepUntil, failed }, now, (outcome) => {
      this.core.holders.done();
      return answer(this.#released(outcome, failed));
    });
  }

  #released(outcome: ReleaseOutcome, failed: boolean): ReleaseResult {
    const { clock, events } = this.core;
    switch (outcome) {
      case 'released':
        this.#traceEnd('released', failed);
        if (events.has('released')) {
          events.publish('released', { ...this.subject, held: Math.round(clock.now() - this.#grantedAt) });
        }
        return 'released';
      case 'lost':
        return this.#lostAtRelease(lostError(this.subject, 'revoked'));
      case 'unknown':
        this.#traceEnd('pending', failed);
        events.publish('release-pending', this.subject);
        return 'pending';
      default: {
        const reason = outcome.written === 'unknown' ? 'commit-unknown' : 'rolled-back';
        return this.#lostAtRelease(lostError(this.subject, reason, outcome.cause));
      }
    }
  }

  #lostAtRelease(error: LockLostError): ReleaseResult {
    this.#releaseError = error;
    this.#reportLoss(error);
    return 'lost';
  }

  #reportLoss(error: LockLostError): void {
    const { clock, events, logger } = this.core;
    this.#traceEnd(error, false);
    const { reason } = error;
    events.publish('lost', { ...this.subject, held: Math.round(clock.now() - this.#grantedAt), reason });
    logger.warn(error.message);
    markReported(error);
  }

  /** Reports to the tracing channel how it ended. */
  #traceEnd(...end: Parameters<EndTrace>): void {
    if (this.#endTrace === undefined) return;
    this.core.labels.forget(this);
    this.#endTrace(...end);
    // Its promise keeps the async context of the caller, and with it the locks before.
    this.#endTrace = undefined;
  }

  #warnOfOutliving(): void {
    if (warnedOfOutliving.has(this.core)) return;
    warnedOfOutliving.add(this.core);
    this.core.logger.warn(
      `${nameOf(this.subject)} stays held although the call that acquired it has ended: a nested call of the same key has not ended. ` +
        'Await nested calls, or start work that outlives the call with detached(). (Warned once.)',
    );
  }
}

const warnedOfOutliving = new WeakSet<ProviderCore>();
