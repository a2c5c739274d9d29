import { LockUnavailableError, type LockLostError, type LossReason } from '../../api/errors.js';
import type { LockBackend, ReleaseOutcome } from '../../api/lock-provider.js';
import type { ReleaseResult } from '../../api/lock.js';
import type { AcquireTerms } from '../acquire/acquire-terms.js';
import type { CoreParts } from '../core-parts.js';
import type { Reachability } from '../events/reachability.js';
import { nameOf } from '../events/subject.js';
import { DenseSet } from '../toolkit/dense-set.js';
import type { HeldGrant } from './held-grant.js';
import { Hold, lostError } from './hold.js';
import { Watchdog } from './watchdog.js';

/** What the callers of this process hold at one provider: from the grant, through the renewals, to the release or the loss. */
export class Holds {
  readonly #grants = new DenseSet<HeldGrant>();
  readonly #watchdog: Watchdog;
  /** How many are being given back: a release may commit what a task has written. */
  #leaving = 0;
  #onceIdle: (() => void) | undefined;
  #knownSuspensions = 0;
  #warnedOfOutliving = false;

  constructor(
    backend: Pick<LockBackend, 'renew' | 'locksEndWithProcess'>,
    private readonly parts: CoreParts,
    reachability: Reachability,
  ) {
    const { clock, suspension, events } = parts;
    this.#watchdog = new Watchdog(this.#grants, backend, clock, suspension, events, reachability);
  }

  /** Those that are valid, the oldest first. */
  get valid(): readonly Hold[] {
    return this.#grants
      .values()
      .flatMap((grant) => [...grant.holders].filter((holder) => holder instanceof Hold))
      .filter((hold) => hold.isValid())
      .sort((one, other) => one.grantedAt - other.grantedAt || (one.key < other.key ? -1 : 1));
  }

  get isIdle(): boolean {
    return this.#grants.size === 0 && this.#leaving === 0;
  }

  /** Resolves when nothing is held, and each release was answered or has failed once. */
  async idle(): Promise<void> {
    if (!this.isIdle) await new Promise<void>((resolve) => (this.#onceIdle = resolve));
  }

  /** A caller holds by the grant from `now` on, the first one or after another. */
  begin(grant: HeldGrant, { subject, limited, startedAt }: AcquireTerms, now: number): Hold {
    const { clock, events, random } = this.parts;
    const { token, id } = grant;
    const holder = grant.isFirst ? id : random.id();
    const hold = new Hold(subject, grant, holder, token, limited, now, clock, this.#onLost);
    grant.holders.add(hold);
    if (!this.#grants.has(grant)) {
      this.#grants.add(grant);
      this.#watchdog.added(grant);
    }
    events.publish('acquired', () => ({ ...subject, waited: now - startedAt, fencingToken: token }));
    return hold;
  }

  /** The grant is given back or lost. Before its release is sent, so that no renewal follows it. */
  ended(grant: HeldGrant): void {
    if (!this.#grants.delete(grant)) return;
    this.#watchdog.removed();
    if (this.isIdle) this.#onceIdle?.();
  }

  /**
   * Ends one entry into a hold, and the hold with the last.
   *
   * @param failed whether its task failed, so that a transaction below it is rolled back
   * @param lock the lock that this entry is
   */
  release(hold: Hold, failed: boolean, lock?: object): Promise<ReleaseResult> {
    hold.entries -= 1;
    if (hold.entries > 0) {
      if (hold.lostError) return Promise.resolve('lost');
      // After a failure the other branches of a Promise.all may well continue, and a handler after the timeout of its request.
      if (lock === hold.acquiredBy && !failed) this.#warnOfOutliving(hold);
      return Promise.resolve('nested');
    }
    if (!hold.markReleased()) return Promise.resolve('lost');
    this.#leaving += 1;
    return hold.grant.release(hold, { keepUntil: hold.grant.keepUntil, failed }).then((outcome) => {
      this.#leaving -= 1;
      const result = this.#released(hold, outcome, failed);
      if (this.isIdle) this.#onceIdle?.();
      return result;
    });
  }

  /** Renews the hold now, for `lease` ms from now on. */
  async extend(hold: Hold, lease: number): Promise<void> {
    const { grant } = hold;
    grant.changeLease(lease);
    const outcome = await this.#watchdog.renew(grant);
    const error = hold.lostError;
    if (error) throw error;
    if (outcome === 'unknown') {
      const { subject, key } = hold;
      throw new LockUnavailableError(
        `${nameOf(subject)} could not be extended: the backend did not answer; it stays held for ${Math.round(hold.remaining())} ms.`,
        { key, provider: subject.provider },
      );
    }
  }

  /** The end of the hold has moved. */
  reschedule({ grant }: Hold): void {
    this.#watchdog.reschedule(grant);
  }

  /** Asks the backend whether a grant still stands. */
  check(grant: HeldGrant): void {
    void this.#watchdog.renew(grant);
  }

  /** Asks the backend whether all of them still stand: it was out of reach, or may have forgotten them. */
  confirm(): void {
    this.#watchdog.renewAll();
  }

  /** A question found that the machine was suspended: asks, once for each time, whether they still stand. */
  confirmAfterSuspension(): void {
    const suspensions = this.parts.suspension.observe();
    if (suspensions === this.#knownSuspensions) return;
    this.#knownSuspensions = suspensions;
    this.confirm();
  }

  /** Takes all locks away from their tasks and gives them back. */
  loseAll(reason: LossReason): void {
    for (const grant of this.#grants.values()) grant.lose(reason);
  }

  readonly #onLost = (hold: Hold, error: LockLostError): void => {
    this.#publishLost(hold, error);
    this.parts.logger.warn(error.message);
    // Its maxHold has passed: nobody else goes on under a grant that its task may still use.
    hold.grant.abandon(hold, { keepUntil: hold.grant.keepUntil, failed: true });
  };

  #warnOfOutliving({ subject }: Hold): void {
    if (this.#warnedOfOutliving) return;
    this.#warnedOfOutliving = true;
    this.parts.logger.warn(
      `${nameOf(subject)} stays held although the call that acquired it has ended: a nested call of the same key has not ended. ` +
        'Await nested calls, or start work that outlives the call with detached(). (Warned once.)',
    );
  }

  #released(hold: Hold, outcome: ReleaseOutcome, failed: boolean): ReleaseResult {
    const { subject } = hold;
    const { clock, events } = this.parts;
    switch (outcome) {
      case 'released':
        hold.traceEnd('released', failed);
        events.publish('released', () => ({ ...subject, held: clock.now() - hold.grantedAt }));
        return 'released';
      case 'lost':
        return this.#lostAtRelease(hold, lostError(subject, 'revoked'));
      case 'unknown':
        hold.traceEnd('pending', failed);
        events.publish('release-pending', () => subject);
        return 'pending';
      default: {
        const reason = outcome.written === 'unknown' ? 'commit-unknown' : 'rolled-back';
        return this.#lostAtRelease(hold, lostError(subject, reason, outcome.cause));
      }
    }
  }

  #lostAtRelease(hold: Hold, error: LockLostError): ReleaseResult {
    hold.releaseError = error;
    this.#publishLost(hold, error);
    this.parts.logger.warn(error.message);
    return 'lost';
  }

  #publishLost(hold: Hold, error: LockLostError): void {
    const { clock, events } = this.parts;
    hold.traceEnd(error, false);
    events.publish('lost', () => ({ ...hold.subject, held: clock.now() - hold.grantedAt, reason: error.reason }));
  }
}
