import type { Clock, Timer } from '../../api/clock.js';
import type { LossReason } from '../../api/errors.js';
import type { LockBackend, RenewOutcome } from '../../api/lock-provider.js';
import type { HeldGrant } from './held-grant.js';
import { DenseSet } from '../toolkit/dense-set.js';
import { detached } from '../toolkit/detached.js';
import type { SuspensionDetector } from '../toolkit/suspension.js';

/**
 * Renews this application's grants from one provider, and detects losses. One timer serves all grants. Renewals due
 * together are sent in one tick, but each gets its own response.
 *
 * The watchdog never renews after the deadline: if its timer is late, it reports the loss instead.
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

  /** The grants, in no particular order. */
  get grants(): readonly HeldGrant[] {
    return this.#grants.values();
  }

  add(grant: HeldGrant, now: number): void {
    this.#grants.add(grant);
    this.#wakeBy(grant.nextWake, now);
  }

  remove(grant: HeldGrant): void {
    if (this.#grants.delete(grant) && this.#grants.size === 0) this.#sleep();
  }

  /** Must be called when the grant's {@link HeldGrant.nextWake} may have become earlier. */
  reschedule(grant: HeldGrant): void {
    // Runs detached because this timer and its successors would retain the caller's async context.
    if (this.#grants.has(grant)) detached(this.#wakeBy, grant.nextWake, this.clock.now());
  }

  /** @param length the lease length of this and later renewals, in ms. Default: unchanged */
  renew(grant: HeldGrant, length?: number): Promise<RenewOutcome> {
    const outcome = this.#send(grant, this.suspension.observe(), length);
    // The next renewal may now be due before the timer fires.
    this.reschedule(grant);
    return outcome;
  }

  /** Renews all grants now, after a reconnect (before waiters send their requests) or a suspension. */
  renewAll(): void {
    for (const grant of this.grants) grant.lease.renewSoon();
    this.#renewDue();
  }

  /** Verifies all grants with the backend, once per machine suspension. */
  renewAfterSuspension(): void {
    const suspensions = this.suspension.observe();
    if (suspensions === this.#knownSuspensions) return;
    this.#knownSuspensions = suspensions;
    this.renewAll();
  }

  /** Ends all grants as lost, and releases them. */
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

  /** @param suspensions how many machine suspensions are known before the renewal is sent */
  async #send(grant: HeldGrant, suspensions: number, length?: number): Promise<RenewOutcome> {
    const outcome = await grant.renewNow(suspensions, length);
    if (outcome !== 'unknown') this.reschedule(grant);
    return outcome;
  }

  readonly #wakeBy = (time: number, now: number): void => {
    if (time >= this.#wakesAt || this.#grants.size === 0) return;
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#wakesAt = time;
    // Round up: a timer that fires a fraction of a millisecond early would find nothing due and spin.
    const delay = Math.max(Math.ceil(time - now), 1);
    // Usually keeps the process alive: during an outage, there may be no open socket to do so, and a leader would exit
    // without an error.
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
