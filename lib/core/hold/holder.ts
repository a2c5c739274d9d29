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
import { identity } from './releases.js';

interface MaxHold {
  readonly length: number;
  readonly endsAt: number;
}

/** Called once, when the lock is lost. */
export type LossListener = (error: LockLostError) => void;

/**
 * One key that one owner holds under a grant, shared by a lock and its nested entries. The backend knows nothing about
 * holders.
 *
 * Validity is computed from the clock. The watchdog's timer just reports a loss sooner. If the event loop was blocked,
 * the timer fires late, but {@link expire} runs before each user query and finds the loss. A lost holder never becomes
 * valid again.
 */
export class Holder {
  /** The observer's notes. */
  notes: unknown;
  /** A random id for this hold. */
  readonly id: string;
  readonly fencingToken: bigint | null;
  #isHolding = true;
  #maxHold: MaxHold | undefined;
  #entries = 1;
  /** The first entry's lock. */
  #acquiredBy: object | undefined;
  /** Whether the first entry's task failed. Set if nested entries outlive it. */
  #hasFirstFailed: boolean | undefined;
  #listeners: Set<LossListener> | undefined;
  #lostError: LockLostError | undefined;
  #releaseError: LockLostError | undefined;

  constructor(
    readonly grant: HeldGrant,
    private readonly plan: LockPlan,
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

  /** The subject of events and messages about this holder. */
  get subject(): LockEvent {
    return subjectOf(this.key, this.plan);
  }

  get endsAt(): number {
    return this.#maxHold?.endsAt ?? Infinity;
  }

  /** Whether the holder is neither released nor known to be lost. Doesn't check the clock. */
  get isHolding(): boolean {
    return this.#isHolding;
  }

  /** Whether no lock refers to this holder yet. */
  get isNew(): boolean {
    return this.#acquiredBy === undefined;
  }

  get entries(): number {
    return this.#entries;
  }

  /** The loss, if the holder lost its key. */
  get lostError(): LockLostError | undefined {
    return this.#lostError;
  }

  /** The loss that the release revealed, if any. */
  get releaseError(): LockLostError | undefined {
    return this.#releaseError;
  }

  isValid(now: number): boolean {
    return this.#isHolding && now < this.endsAt && this.grant.isValid(now);
  }

  /**
   * - `held`: this process definitely holds the key.
   * - `unverified`: the machine was suspended, and no renewal has been acknowledged since. Not yet a loss.
   */
  status(now: number): 'held' | 'unverified' | 'over' {
    if (!this.isValid(now)) return 'over';
    return this.grant.isVerified() ? 'held' : 'unverified';
  }

  remaining(now: number): number {
    return this.isValid(now) ? Math.min(this.grant.lease.validUntil, this.endsAt) - now : 0;
  }

  /** Notes that a lock refers to this holder. */
  use(lock: object): void {
    this.#acquiredBy ??= lock;
    this.grant.use();
  }

  reEnter(): void {
    this.#entries += 1;
  }

  /** Ends the hold `maxHold` ms after `now`. */
  endAfter(maxHold: number, now: number): void {
    this.#maxHold = { length: maxHold, endsAt: now + maxHold };
    this.grant.endsAt(now + maxHold);
    this.plan.core.watchdog.reschedule(this.grant);
  }

  /**
   * Extends the lease to `lease` ms, now and in later renewals.
   *
   * @throws LockLostError; LockUnavailableError if there is no response
   */
  async extend(lease: number): Promise<void> {
    const { grant, subject } = this;
    const { clock, watchdog } = this.plan.core;
    const outcome = await watchdog.renew(grant, lease);
    const now = clock.now();
    this.expire(now);
    if (this.#lostError) throw this.#lostError;
    if (outcome !== 'unknown') return;
    throw new LockUnavailableError(
      `${nameOf(subject)} could not be extended, because the backend did not respond. It remains held for ${Math.round(this.remaining(now))} ms: retry before then.`,
      { key: subject.key, provider: subject.provider },
    );
  }

  /** Calls `listener` when the key is lost. Does nothing if the hold has ended. */
  whenLost(listener: LossListener): void {
    if (this.#isHolding) (this.#listeners ??= new Set()).add(listener);
  }

  /** Removes a listener, because any number of nested entries may come and go during one hold. */
  forget(listener: LossListener): void {
    this.#listeners?.delete(listener);
  }

  /** Ends the hold as lost if its lease has expired or its `maxHold` has passed. */
  expire(now: number): void {
    if (!this.#isHolding) return;
    if (now < this.endsAt) {
      if (now >= this.grant.lease.validUntil) this.grant.expire(now);
      return;
    }
    this.lose('max-hold');
    // The task may still be running, so the lock is not handed off to another caller under this grant. Other holders
    // keep the lock.
    this.grant.endCohort();
    void this.grant.queue.release(this, true, now, identity);
    this.onLost();
  }

  /** Marks the holder as lost. Listeners run later, in {@link onLost}. */
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
    // Runs detached because the caller that found the loss may hold other locks, which a listener must not re-enter.
    for (const listener of listeners) detached(listener, error);
  }

  /**
   * Ends one entry; the last one also ends the hold. Resolves to the return value of `answer`, which is called in the
   * tick in which the result arrives.
   *
   * @param failed whether the task failed. If the first entry's did, a row lock's transaction is rolled back
   * @param lock the lock of this entry, if the user already has one
   */
  release<R>(failed: boolean, lock: object | undefined, answer: (result: ReleaseResult) => R): Promise<R> {
    const { clock, holders, observer } = this.plan.core;
    const now = clock.now();
    this.expire(now);
    this.#entries -= 1;
    if (!this.#isHolding) return Promise.resolve(answer('lost'));
    if (this.#entries > 0) {
      if (lock === this.#acquiredBy) this.#hasFirstFailed = failed;
      // After a failure, nested calls often keep running, such as other branches of a Promise.all or a handler whose
      // request timed out.
      if (lock === this.#acquiredBy && !failed) observer.ended(this, 'nested');
      return Promise.resolve(answer('nested'));
    }
    this.#isHolding = false;
    this.#listeners = undefined;
    const hasFailed = this.#hasFirstFailed ?? failed;
    return this.grant.queue.release(this, hasFailed, now, (outcome) => {
      holders.done();
      return answer(this.#released(outcome, hasFailed));
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
