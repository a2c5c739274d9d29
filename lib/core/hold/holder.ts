import { type LockLostError, LockUnavailableError, type LossReason } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { ReleaseOutcome } from '../../api/lock-provider.js';
import type { ReleaseResult } from '../../api/lock.js';
import { type LockPlan, subjectOf } from '../plan/lock-plan.js';
import type { LockSettings } from '../plan/lock-settings.js';
import { nameOf } from '../events/subject.js';
import { detached } from '../toolkit/detached.js';
import type { HeldGrant } from './held-grant.js';
import { lostError } from './lost-error.js';
import { asItIs } from './releases.js';

/** An end that the user has set. */
interface MaxHold {
  readonly length: number;
  /** On the monotonic clock. */
  readonly endsAt: number;
}

/** Called once when a lock is lost. */
export type LossListener = (error: LockLostError) => void;

/**
 * One key of one owner, which it holds by a grant: the record that a lock and its nested entries share. The backend never hears of it.
 *
 * Validity is computed from the clock. The watchdog's timer only makes a loss known earlier: after a blocked event loop it is late, and then
 * {@link expire}, which precedes each question of a user, finds the loss. Once lost, it stays lost.
 */
export class Holder {
  /** The observer's own. */
  notes: unknown;
  /** Random id of this hold. */
  readonly id: string;
  readonly fencingToken: bigint | null;
  #isHolding = true;
  #maxHold: MaxHold | undefined;
  #entries = 1;
  /** The lock that it was acquired for: the first entry. */
  #acquiredBy: object | undefined;
  #listeners: Set<LossListener> | undefined;
  #lostError: LockLostError | undefined;
  #releaseError: LockLostError | undefined;

  constructor(
    readonly grant: HeldGrant,
    private readonly plan: LockPlan,
    /** On the monotonic clock. */
    readonly grantedAt: number,
  ) {
    const { holders, random } = plan.core;
    this.id = grant.isFirst ? grant.request.id : random.id();
    this.fencingToken = grant.fencingToken;
    holders.add();
  }

  get key(): string {
    return this.grant.request.key;
  }

  get terms(): LockSettings {
    return this.plan.settings;
  }

  /** The subject of events and messages about it. */
  get subject(): LockEvent {
    return subjectOf(this.key, this.plan);
  }

  get endsAt(): number {
    return this.#maxHold?.endsAt ?? Infinity;
  }

  /** It was neither released nor lost, as far as is known. It looks at no clock. */
  get isHolding(): boolean {
    return this.#isHolding;
  }

  /** No lock was made of it yet. */
  get isNew(): boolean {
    return this.#acquiredBy === undefined;
  }

  get entries(): number {
    return this.#entries;
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
    return this.#isHolding && now < this.endsAt && this.grant.isValid(now);
  }

  /**
   * - `held`: surely ours.
   * - `unverified`: the machine was suspended, and no renewal has answered since. Not yet loss.
   */
  status(now: number): 'held' | 'unverified' | 'over' {
    if (!this.isValid(now)) return 'over';
    return this.grant.isVerified() ? 'held' : 'unverified';
  }

  remaining(now: number): number {
    return this.isValid(now) ? Math.min(this.grant.lease.validUntil, this.endsAt) - now : 0;
  }

  /** A lock is made of it. */
  use(lock: object): void {
    this.#acquiredBy ??= lock;
    this.grant.use();
  }

  /** One more lock of its owner is made of it. */
  reEnter(): void {
    this.#entries += 1;
  }

  /** The hold ends `maxHold` ms after `now`. */
  endAfter(maxHold: number, now: number): void {
    this.#maxHold = { length: maxHold, endsAt: now + maxHold };
    this.grant.endsAt(now + maxHold);
    this.plan.core.watchdog.reschedule(this.grant);
  }

  /** Renews it now, for `lease` ms from now on. @throws LockLostError; LockUnavailableError without an answer */
  async extend(lease: number): Promise<void> {
    const { grant, subject } = this;
    const { clock, watchdog } = this.plan.core;
    grant.changeLease(lease);
    const outcome = await watchdog.renew(grant);
    const now = clock.now();
    this.expire(now);
    if (this.#lostError) throw this.#lostError;
    if (outcome !== 'unknown') return;
    throw new LockUnavailableError(
      `${nameOf(subject)} could not be extended, because the backend did not answer. It stays held for ${Math.round(this.remaining(now))} ms: retry until then.`,
      { key: subject.key, provider: subject.provider },
    );
  }

  /** Calls `listener` at the loss, if that has not happened yet. */
  whenLost(listener: LossListener): void {
    if (this.#isHolding) (this.#listeners ??= new Set()).add(listener);
  }

  /** Takes back `whenLost`: one holder may see many nested entries come and go. */
  forget(listener: LossListener): void {
    this.#listeners?.delete(listener);
  }

  /** Loses the hold, if it is over by the clock. */
  expire(now: number): void {
    if (!this.#isHolding) return;
    if (now < this.endsAt) {
      if (now >= this.grant.lease.validUntil) this.grant.expire(now);
      return;
    }
    this.lose('max-hold');
    // Its task may still run, so no other caller enters by this grant. Those that hold by it keep it.
    this.grant.endCohort();
    void this.grant.queue.release(this, true, now, asItIs);
    this.onLost();
  }

  /** It is lost. Nobody is told before {@link onLost}. */
  lose(reason: LossReason, cause?: unknown): void {
    this.#isHolding = false;
    this.grant.remove(this);
    this.#lostError = lostError(this.subject, reason, cause, this.#maxHold?.length);
    this.plan.core.holders.done();
  }

  onLost(): void {
    const error = this.#lostError;
    if (error === undefined) return;
    this.plan.core.observer.ended(this, error);
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
    const { clock, holders, observer } = this.plan.core;
    const now = clock.now();
    this.expire(now);
    this.#entries -= 1;
    if (!this.#isHolding) return Promise.resolve(answer('lost'));
    if (this.#entries > 0) {
      // After a failure the other branches of a Promise.all may well continue, and a handler after the timeout of its request.
      if (lock === this.#acquiredBy && !failed) observer.ended(this, 'nested');
      return Promise.resolve(answer('nested'));
    }
    this.#isHolding = false;
    this.#listeners = undefined;
    return this.grant.queue.release(this, failed, now, (outcome) => {
      holders.done();
      return answer(this.#released(outcome, failed));
    });
  }

  #released(outcome: ReleaseOutcome, failed: boolean): ReleaseResult {
    const { observer } = this.plan.core;
    switch (outcome) {
      case 'released':
        observer.ended(this, { result: 'released', failed });
        return 'released';
      case 'unknown':
        observer.ended(this, { result: 'pending', failed });
        return 'pending';
      case 'lost':
        return this.#lostAtRelease(lostError(this.subject, 'revoked'));
      default: {
        const reason = outcome.written === 'unknown' ? 'commit-unknown' : 'rolled-back';
        return this.#lostAtRelease(lostError(this.subject, reason, outcome.cause));
      }
    }
  }

  #lostAtRelease(error: LockLostError): ReleaseResult {
    this.#releaseError = error;
    this.plan.core.observer.ended(this, error);
    return 'lost';
  }
}
