import type { Clock, Timer } from '../../api/clock.js';
import type { LossReason } from '../../api/errors.js';
import type { LockBackend, RenewOutcome } from '../../api/lock-provider.js';
import type { HeldGrant } from './held-grant.js';
import { DenseSet } from '../toolkit/dense-set.js';
import { detached } from '../toolkit/detached.js';
import type { SuspensionDetector } from '../toolkit/suspension.js';

/**
 * Renews what callers of this application hold at one provider, and finds what is lost. One timer for all; renewals that are due together
 * are sent in one tick, and each is answered by itself.
 *
 * It never renews past a deadline: a watchdog that wakes late finds the loss instead.
 */
export class Watchdog {
  readonly #grants = new DenseSet<HeldGrant>();
  #timer: Timer | undefined;
  #wakesAt = Infinity;
  #knownSuspensions = 0;

  constructor(
    private readonly backend: Pick<LockBackend, 'locksEndWithProcess'>,
    private readonly clock: Clock,
    private readonly suspension: SuspensionDetector,
  ) {}

  /** The grants that it renews, in no order. */
  get grants(): readonly HeldGrant[] {
    return this.#grants.values();
  }

  /** The grant has come at `now`. */
  add(grant: HeldGrant, now: number): void {
    this.#grants.add(grant);
    this.#wakeBy(grant.nextWake, now);
  }

  /** The grant is given back or lost. */
  remove(grant: HeldGrant): void {
    if (this.#grants.delete(grant) && this.#grants.size === 0) this.#sleep();
  }

  /** The times of the grant have changed. */
  reschedule(grant: HeldGrant): void {
    // In no caller's context: this timer and those that follow it would keep that context alive.
    if (this.#grants.has(grant)) detached(this.#wakeBy, grant.nextWake, this.clock.now());
  }

  /** Renews the grant now. */
  renew(grant: HeldGrant): Promise<RenewOutcome> {
    const outcome = this.#send(grant, this.suspension.observe());
    // Its lease may have become shorter, and its deadline with it.
    this.reschedule(grant);
    return outcome;
  }

  /** Renews now all that are renewed at all: after a reconnect, before callers that wait ask; and after a suspension. */
  renewAll(): void {
    for (const grant of this.grants) grant.lease.hurry();
    this.#renewDue();
  }

  /** A question found that the machine may have been suspended: asks once for each time whether all of them still stand. */
  renewAfterSuspension(): void {
    const suspensions = this.suspension.observe();
    if (suspensions === this.#knownSuspensions) return;
    this.#knownSuspensions = suspensions;
    this.renewAll();
  }

  /** Takes all locks away from their tasks and gives them back. */
  loseAll(reason: LossReason): void {
    for (const grant of this.grants) grant.lose(reason);
  }

  #renewDue(): void {
    this.#sleep();
    const now = this.clock.now();
    const due: HeldGrant[] = [];
    for (const grant of this.grants) {
      grant.expireHolders(now);
      if (this.#grants.has(grant) && grant.lease.isDue(now)) due.push(grant);
    }
    if (due.length > 0) {
      const suspensions = this.suspension.observe();
      for (const grant of due) void this.#send(grant, suspensions);
    }
    let next = Infinity;
    for (const grant of this.grants) next = Math.min(next, grant.nextWake);
    this.#wakeBy(next, now);
  }

  /** @param suspensions how many there were before it is sent */
  async #send(grant: HeldGrant, suspensions: number): Promise<RenewOutcome> {
    const outcome = await grant.renewNow(suspensions);
    if (outcome !== 'unknown') this.reschedule(grant);
    return outcome;
  }

  readonly #wakeBy = (time: number, now: number): void => {
    if (time >= this.#wakesAt || this.#grants.size === 0) return;
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#wakesAt = time;
    // Rounded up: a timer that fires a fraction early would find nothing due and spin.
    const delay = Math.max(Math.ceil(time - now), 1);
    // In an outage no socket may be left that keeps a holder alive, and a leader would end without an error.
    this.#timer = this.clock.setTimer(this.#onTime, delay, this.backend.locksEndWithProcess !== true);
  };

  readonly #onTime = (): void => {
    this.#renewDue();
  };

  #sleep(): void {
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
    this.#wakesAt = Infinity;
  }
}
