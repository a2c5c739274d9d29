import { LockLostError, type LossReason } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { LimitTerms } from '../../api/lock-options.js';
import type { LeaseTerms } from '../acquire/acquire-terms.js';
import type { Clock } from '../../api/clock.js';
import { type Grant } from '../../api/lock-provider.js';
import { LeaseValidity } from '../toolkit/validity.js';
import { nameOf } from '../events/subject.js';
import type { SuspensionDetector } from '../toolkit/suspension.js';
import { type HoldEnd, traceHold } from '../events/tracing.js';

/** Called once when a hold is lost. */
export type LossListener = (error: LockLostError) => void;

/**
 * One key held by one owner, from its grant to its last release: the record that a lock, its nested entries and the
 * watchdog share.
 *
 * Validity is computed from the clock at each question. The watchdog's timer only makes a loss known earlier; after a
 * blocked event loop it is late, and then the first question finds the loss. Once lost, it stays lost.
 */
export class Hold {
  readonly key: string;
  /** The length of the lease for the next renewals, in ms. */
  lease: number;
  /** When the watchdog should renew next, on the monotonic clock; `Infinity` for a lease that is not renewed. */
  renewAt: number;
  /** When `maxHold` ends, on the monotonic clock. */
  endsAt = Infinity;
  /** How many locks of its owner are open on this hold: the first and those that re-entered. */
  entries = 1;
  /** The lock that it was acquired for: the first entry. */
  acquiredBy: object | undefined;
  /** Why its release did not end it as it should have. */
  releaseError: LockLostError | undefined;
  /** Whether only the caller of `acquire()` has it in hand: it opened no context in which other calls can enter it again. */
  isApart = false;
  /** Ends its trace, if somebody listened to the tracing channel at its start. */
  #endTrace: ((end: HoldEnd) => void) | undefined;
  readonly #validity: LeaseValidity;
  #state: 'held' | 'released' | 'lost' = 'held';
  #error: LockLostError | undefined;
  #listeners: Set<LossListener> | undefined;

  constructor(
    readonly subject: LockEvent,
    readonly grant: Grant,
    readonly terms: LeaseTerms,
    readonly limited: LimitTerms | undefined,
    readonly grantedAt: number,
    /** How many suspensions of the machine were known when the last acknowledged command was sent. */
    private confirmedAfter: number,
    private readonly clock: Clock,
    private readonly suspension: SuspensionDetector,
    private readonly onLost: (hold: Hold, error: LockLostError) => void,
  ) {
    this.key = grant.key;
    this.lease = grant.lease;
    this.#validity = new LeaseValidity(grant.lease, grant.validUntil);
    this.renewAt = terms.renew ? this.#nextRenewal() : Infinity;
    this.#endTrace = traceHold(subject, grant.fencingToken);
  }

  /** Reports to the tracing channel how it ended. */
  traceEnd(end: HoldEnd): void {
    this.#endTrace?.(end);
    // Its promise keeps the async context of the caller, and with it the locks before.
    this.#endTrace = undefined;
  }

  get validUntil(): number {
    return this.#validity.until;
  }

  /** Until when the backend may keep the lock if no release reaches it, on the monotonic clock. */
  get mayBeKeptUntil(): number {
    return Math.max(this.clock.now() + this.#validity.longest, this.keepUntil);
  }

  /** Until when the key stays retained after a release (`minHold`), on the monotonic clock; 0 for not at all. */
  get keepUntil(): number {
    return this.terms.minHold === 0 ? 0 : this.grantedAt + this.terms.minHold;
  }

  /** Why it is not held any more, if it was lost. Looks at the clock. */
  get lostError(): LockLostError | undefined {
    this.#expireIfDue();
    return this.#error;
  }

  /** Milliseconds until the deadline; 0 when not held. */
  remaining(): number {
    this.#expireIfDue();
    return this.#state === 'held' ? Math.min(this.#validity.until, this.endsAt) - this.clock.now() : 0;
  }

  /**
   * - `held`: surely ours.
   * - `unverified`: the machine was suspended, and no renewal has answered since. Not yet loss.
   */
  status(): 'held' | 'unverified' | 'released' | 'lost' {
    this.#expireIfDue();
    if (this.#state !== 'held') return this.#state;
    return this.suspension.observe() === this.confirmedAfter ? 'held' : 'unverified';
  }

  /** Still ours by the deadline, without the look at a suspension: for the core, which has just asked. */
  isValid(): boolean {
    this.#expireIfDue();
    return this.#state === 'held';
  }

  /** A renewal to its lease is about to be sent. Answers its number, for {@link confirm}. */
  beginRenewal(): number {
    return this.#validity.renewing(this.lease, this.clock.now());
  }

  /** The renewal of this number, sent after `suspensions` suspensions, was acknowledged. */
  confirm(renewal: number, until: number, suspensions: number): void {
    // An acknowledgement that is processed after the deadline does not bring a lost lock back.
    if (!this.isValid() || !this.#validity.acknowledged(renewal, until)) return;
    this.confirmedAfter = suspensions;
    if (this.terms.renew) this.renewAt = this.#nextRenewal();
  }

  /** Ends it as lost, unless it has ended already. */
  lose(reason: LossReason, cause?: unknown): void {
    if (this.#state !== 'held') return;
    this.#state = 'lost';
    const error = lostError(this.subject, reason, cause);
    this.#error = error;
    this.onLost(this, error);
    const listeners = [...(this.#listeners ?? [])];
    this.#listeners = undefined;
    for (const listener of listeners) listener(error);
  }

  /** Ends it as released. Answers false when it had ended before. */
  markReleased(): boolean {
    this.#expireIfDue();
    if (this.#state !== 'held') return false;
    this.#state = 'released';
    this.#listeners = undefined;
    return true;
  }

  /** Calls `listener` at the loss; at once if it is lost already. */
  whenLost(listener: LossListener): void {
    const error = this.lostError;
    if (error) listener(error);
    else if (this.#state === 'held') (this.#listeners ??= new Set()).add(listener);
  }

  /** Takes back `whenLost`: one hold may see many nested entries come and go. */
  forget(listener: LossListener): void {
    this.#listeners?.delete(listener);
  }

  #expireIfDue(): void {
    if (this.#state !== 'held') return;
    const now = this.clock.now();
    if (now >= this.endsAt) this.lose('max-hold');
    else if (now >= this.#validity.until) this.lose('expired');
  }

  // A third of the lease: two renewals may fail before the deadline (the cadence of Redisson and DistributedLock).
  // Counted back from the deadline, which was computed from the time when the acknowledged command was sent.
  #nextRenewal(): number {
    return this.#validity.until - (this.lease * 2) / 3;
  }
}

/** The error for a lock that is not held any more. */
export function lostError(subject: LockEvent, reason: LossReason, cause?: unknown): LockLostError {
  return new LockLostError(`${nameOf(subject)} was lost: ${EXPLANATIONS[reason]}.`, {
    key: subject.key,
    provider: subject.provider,
    reason,
    cause,
  });
}

const EXPLANATIONS: Record<LossReason, string> = {
  expired: 'no renewal was acknowledged before its deadline; look for a blocked event loop or an unreachable backend',
  revoked: 'the backend reports that it is not ours any more (force-released, flushed, or its session ended)',
  'max-hold': 'its maxHold has passed',
  shutdown: 'the application stopped before the task ended; raise shutdownGrace if it needs longer',
  released: 'it was released already',
  'rolled-back':
    'its transaction could not be committed, so that nothing that was written in it is saved; see the cause',
  'commit-unknown':
    'the outcome of COMMIT is unknown, so that what was written in its transaction may be saved or not; raise commitTimeout if the server is only slow',
};
