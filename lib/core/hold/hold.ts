import { LockLostError, type LossReason } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { LimitShare, LockMode } from '../../api/lock-mode.js';
import type { Clock } from '../../api/clock.js';
import { nameOf } from '../events/subject.js';
import { type EndTrace, traceHold } from '../events/tracing.js';
import { detached } from '../toolkit/detached.js';
import type { GrantHolder, HeldGrant } from './held-grant.js';

/** Called once when a hold is lost. */
export type LossListener = (error: LockLostError) => void;

/**
 * One key held by one owner, from its grant to its last release: the record that a lock and its nested entries share.
 *
 * Validity is computed from the clock at each question. The watchdog's timer only makes a loss known earlier; after a
 * blocked event loop it is late, and then the first question finds the loss. Once lost, it stays lost.
 */
export class Hold implements GrantHolder {
  /** When `maxHold` ends, on the monotonic clock. */
  endsAt = Infinity;
  /** How many locks of its owner are open on this hold: the first and those that re-entered. */
  entries = 1;
  /** The lock that it was acquired for: the first entry. */
  acquiredBy: object | undefined;
  /** Why its release did not end it as it should have. */
  releaseError: LockLostError | undefined;
  /** Ends its trace, if somebody listened to the tracing channel at its start. */
  #endTrace: EndTrace | undefined;
  #state: 'held' | 'released' | 'lost' = 'held';
  #error: LockLostError | undefined;
  #listeners: Set<LossListener> | undefined;

  constructor(
    readonly subject: LockEvent,
    readonly grant: HeldGrant,
    /** Random id of this hold. */
    readonly holder: string,
    readonly fencingToken: bigint | null,
    readonly limited: LimitShare | undefined,
    readonly grantedAt: number,
    private readonly clock: Clock,
    private readonly onLost: (hold: Hold, error: LockLostError) => void,
  ) {}

  get key(): string {
    return this.subject.key;
  }

  get mode(): LockMode {
    return this.subject.mode;
  }

  /** Reports it to the tracing channel, in the async context of its caller. */
  trace(): void {
    if (this.#state === 'held') this.#endTrace = traceHold(this.subject, this.fencingToken);
  }

  /** Reports to the tracing channel how it ended. */
  traceEnd(...end: Parameters<EndTrace>): void {
    this.#endTrace?.(...end);
    // Its promise keeps the async context of the caller, and with it the locks before.
    this.#endTrace = undefined;
  }

  /** Why it is not held any more, if it was lost. Looks at the clock. */
  get lostError(): LockLostError | undefined {
    this.#expireIfDue();
    return this.#error;
  }

  /** Milliseconds until the deadline; 0 when not held. */
  remaining(): number {
    this.#expireIfDue();
    return this.#state === 'held' ? Math.min(this.grant.validUntil, this.endsAt) - this.clock.now() : 0;
  }

  /**
   * - `held`: surely ours.
   * - `unverified`: the machine was suspended, and no renewal has answered since. Not yet loss.
   */
  status(): 'held' | 'unverified' | 'released' | 'lost' {
    this.#expireIfDue();
    if (this.#state !== 'held') return this.#state;
    return this.grant.isVerified() ? 'held' : 'unverified';
  }

  /** Still ours by the deadline, without the look at a suspension: for the core, which has just asked. */
  isValid(): boolean {
    this.#expireIfDue();
    return this.#state === 'held';
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
    // The caller that has found the loss may hold other locks, which a listener must not re-enter.
    for (const listener of listeners) detached(listener, error);
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
    else this.grant.isValid(now);
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
