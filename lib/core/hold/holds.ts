import { LockUnavailableError, type LockLostError, type LossReason } from '../../api/errors.js';
import type { ReleaseResult } from '../../api/lock.js';
import type { AcquireTerms } from '../acquire/acquire-terms.js';
import type { CoreParts } from '../core-parts.js';
import { Hold, lostError } from './hold.js';
import type { Grant, LockBackend, ReleaseOutcome } from '../../api/lock-provider.js';
import type { Reachability } from '../events/reachability.js';
import type { Releases } from './releases.js';
import { nameOf } from '../events/subject.js';
import { HolderTable } from '../toolkit/holder-table.js';
import { Watchdog } from './watchdog.js';

// A mistake in the code shows in development, where few locks are held; a busy server must not pay for the words of "busy".
const LOOKED_THROUGH = 100;

/** What this process holds at one provider: from the grant, through the renewals, to the release or the loss. */
export class Holds {
  readonly #byHolder = new HolderTable<Hold>();
  readonly #watchdog: Watchdog;
  #onceIdle: (() => void) | undefined;
  #confirmedAfter = 0;
  #warnedOfOutliving = false;

  constructor(
    backend: Pick<LockBackend, 'renew'>,
    private readonly parts: CoreParts,
    reachability: Reachability,
    private readonly releases: Releases,
  ) {
    const { clock, suspension, events } = parts;
    this.#watchdog = new Watchdog(this.#byHolder, backend, clock, suspension, events, reachability);
  }

  /** Those that are valid, the oldest first. */
  get valid(): readonly Hold[] {
    return this.#byHolder
      .values()
      .filter((hold) => hold.isValid())
      .sort((one, other) => one.grantedAt - other.grantedAt || (one.key < other.key ? -1 : 1));
  }

  /**
   * Whether the key is held by a lock that nobody can re-enter, as far as a short look shows: it only words an error, and the look
   * goes over all holds.
   */
  hasApart(key: string): boolean {
    if (this.#byHolder.size > LOOKED_THROUGH) return false;
    for (const hold of this.#byHolder.values()) if (hold.key === key && hold.isApart && hold.isValid()) return true;
    return false;
  }

  get isIdle(): boolean {
    return this.#byHolder.size === 0;
  }

  /** Resolves when nothing is held. */
  async idle(): Promise<void> {
    if (!this.isIdle) await new Promise<void>((resolve) => (this.#onceIdle = resolve));
  }

  /** @param suspensions how many suspensions of the machine were known when the grant was asked for */
  begin({ subject, lease, limited, startedAt }: AcquireTerms, grant: Grant, suspensions: number, now: number): Hold {
    const { clock, events, suspension } = this.parts;
    const hold = new Hold(subject, grant, lease, limited, now, suspensions, clock, suspension, this.#onLost);
    this.#byHolder.set(grant.holder, hold);
    this.#watchdog.added(hold);
    events.publish('acquired', () => ({ ...subject, waited: now - startedAt, fencingToken: grant.fencingToken }));
    return hold;
  }

  /**
   * Ends one entry into a hold, and the hold with the last.
   *
   * @param failed whether its task failed, so that a transaction below it is rolled back
   * @param lock the lock that this entry is
   */
  async leave(hold: Hold, failed: boolean, lock?: object): Promise<ReleaseResult> {
    hold.entries -= 1;
    if (hold.entries > 0) {
      if (hold.lostError) return 'lost';
      // After a failure the other branches of a Promise.all may well continue, and a handler after the timeout of its request.
      if (lock === hold.acquiredBy && !failed) this.#warnOfOutliving(hold);
      return 'nested';
    }
    // Removed from the watchdog before the release is sent: no renewal may follow it.
    if (!hold.markReleased()) return 'lost';
    this.#forget(hold);
    const outcome = await this.releases.send(hold.grant, { keepUntil: hold.keepUntil, failed }, hold.mayBeKeptUntil);
    return this.#released(hold, outcome);
  }

  /** Renews the hold now, for `lease` ms from now on. */
  async extend(hold: Hold, lease: number): Promise<void> {
    hold.lease = lease;
    const outcome = await this.#watchdog.renew(hold);
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
  reschedule(hold: Hold): void {
    this.#watchdog.reschedule(hold);
  }

  /** Asks the backend whether all of them still stand: it was out of reach, or may have forgotten them. */
  confirm(): void {
    this.#watchdog.renewAll();
  }

  /** A question found that the machine was suspended: asks, once for each time, whether they still stand. */
  confirmAfterSuspension(): void {
    const suspensions = this.parts.suspension.observe();
    if (suspensions === this.#confirmedAfter) return;
    this.#confirmedAfter = suspensions;
    this.confirm();
  }

  /** The backend reports that this holder has lost its lock. */
  revoke(holder: string, cause: unknown): void {
    this.#byHolder.get(holder)?.lose('revoked', cause);
  }

  /** Takes all locks away from their tasks and gives them back. */
  loseAll(reason: LossReason): void {
    for (const hold of this.#byHolder.values()) hold.lose(reason);
  }

  readonly #onLost = (hold: Hold, error: LockLostError): void => {
    this.#forget(hold);
    this.#publishLost(hold, error);
    this.parts.logger.warn(error.message);
    // Its id is dead from here on. What it may still hold would block others for a lease.
    void this.releases.send(hold.grant, { keepUntil: hold.keepUntil, failed: true }, hold.mayBeKeptUntil);
  };

  #warnOfOutliving({ subject }: Hold): void {
    if (this.#warnedOfOutliving) return;
    this.#warnedOfOutliving = true;
    this.parts.logger.warn(
      `${nameOf(subject)} stays held although the call that acquired it has ended: a nested call of the same key has not ended. ` +
        'Await nested calls, or start work that outlives the call with detached(). (Warned once.)',
    );
  }

  #forget(hold: Hold): void {
    this.#byHolder.delete(hold.grant.holder);
    this.#watchdog.removed();
    if (this.isIdle) this.#onceIdle?.();
  }

  #released(hold: Hold, outcome: ReleaseOutcome): ReleaseResult {
    const { subject } = hold;
    const { clock, events } = this.parts;
    switch (outcome) {
      case 'released':
        hold.traceEnd('released');
        events.publish('released', () => ({ ...subject, held: clock.now() - hold.grantedAt }));
        return 'released';
      case 'lost':
        return this.#lostAtRelease(hold, lostError(subject, 'revoked'));
      case 'unknown':
        hold.traceEnd('pending');
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
    hold.traceEnd(error);
    events.publish('lost', () => ({ ...hold.subject, held: clock.now() - hold.grantedAt, reason: error.reason }));
  }
}
