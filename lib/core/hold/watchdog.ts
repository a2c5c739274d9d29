import type { Clock, Timer } from '../../api/clock.js';
import type { HeldGrant } from './held-grant.js';
import { Hold } from './hold.js';
import type { LockEventPublisher } from '../events/publisher.js';
import type { Reachability } from '../events/reachability.js';
import type { LockBackend, RenewOutcome } from '../../api/lock-provider.js';
import type { DenseSet } from '../toolkit/dense-set.js';
import { detached } from '../toolkit/detached.js';
import type { SuspensionDetector } from '../toolkit/suspension.js';

// A renewal that was not answered is sent again after a tenth of the lease, at most a second: a backend that restarts
// within the lease is found in time, and one that is down is not stormed.
const RETRY_FRACTION = 0.1;
const RETRY_AT_MOST = 1_000;
// Grants that are due within half of that travel with those that are due now. Each look goes over all: of 10 000 that were
// taken one after the other, it would otherwise go over all for each few.
const BATCH_WINDOW = 0.5;

/**
 * Renews what one provider has granted, and finds what is lost. One timer for all; renewals that
 * are due together are sent in one tick, and each is answered by itself.
 *
 * It never renews past a deadline: a watchdog that wakes late finds the loss instead.
 */
export class Watchdog {
  #timer: Timer | undefined;
  #wakesAt = Infinity;

  constructor(
    /** All that callers hold. */
    private readonly grants: DenseSet<HeldGrant>,
    private readonly backend: Pick<LockBackend, 'renew' | 'locksEndWithProcess'>,
    private readonly clock: Clock,
    private readonly suspension: SuspensionDetector,
    private readonly events: LockEventPublisher,
    private readonly reachability: Reachability,
  ) {}

  /** This grant is among them from now on. */
  added(grant: HeldGrant): void {
    this.#wakeBy(grant.nextWake, grant.grantedAt);
  }

  /** One is not among them any more. Before its release is sent, so that no renewal follows it. */
  removed(): void {
    if (this.grants.size === 0) this.#sleep();
  }

  /** The times of a grant have changed. */
  reschedule(grant: HeldGrant): void {
    // In no caller's context: this timer and those that follow it would keep that context alive.
    if (this.grants.has(grant)) detached(this.#wakeBy, grant.nextWake);
  }

  /** Renews everything now: after a reconnect, before waiters ask; and after a suspension. */
  renewAll(): void {
    for (const grant of this.grants.values()) if (grant.renewAt !== Infinity) grant.renewAt = 0;
    this.#renewDue();
  }

  /** Renews one grant now. */
  renew(grant: HeldGrant): Promise<RenewOutcome> {
    const outcome = this.#send(grant, this.suspension.observe());
    // Its lease may have become shorter, and its deadline with it: if this renewal is not answered, the next one follows in time.
    if (grant.renewAt !== Infinity) grant.renewAt = Math.min(grant.renewAt, this.clock.now() + retryOf(grant));
    this.reschedule(grant);
    return outcome;
  }

  #renewDue(): void {
    this.#sleep();
    const now = this.clock.now();
    const due: HeldGrant[] = [];
    let next = Infinity;
    for (const grant of this.grants.values()) {
      // Asking finds the expiry. What is lost leaves the table by itself.
      if (!grant.isValid()) continue;
      for (const holder of grant.holders) if (now >= holder.endsAt) holder.lose('max-hold');
      if (grant.holders.size === 0) continue;
      const retry = retryOf(grant);
      if (grant.renewAt - retry * BATCH_WINDOW <= now) {
        grant.renewAt = now + retry;
        due.push(grant);
      }
      next = Math.min(next, grant.nextWake);
    }
    this.#wakeBy(next);
    if (due.length === 0) return;
    const suspensions = this.suspension.observe();
    for (const grant of due) void this.#send(grant, suspensions);
  }

  /** @param suspensions how many there were before it is sent */
  async #send(grant: HeldGrant, suspensions: number): Promise<RenewOutcome> {
    const sentAt = this.clock.now();
    const number = grant.beginRenewal();
    let outcome: RenewOutcome;
    try {
      outcome = await this.backend.renew(grant.request, grant.lease);
    } catch (error) {
      this.reachability.failed(error);
      outcome = 'unknown';
    }
    if (outcome === 'lost') grant.lose('revoked');
    else if (outcome !== 'unknown') {
      grant.confirm(number, outcome.validUntil, suspensions);
      // A provider that has gained next to nothing would be asked again immediately, and again.
      grant.renewAt = Math.max(grant.renewAt, sentAt + retryOf(grant));
    }
    // Released or lost by now, it concerns nobody.
    if (grant.isValid()) {
      if (outcome !== 'unknown') this.reachability.answered();
      const name = outcome === 'unknown' ? 'renewal-failed' : 'renewed';
      for (const holder of grant.holders) {
        if (holder instanceof Hold)
          this.events.publish(name, () => ({ ...holder.subject, remaining: holder.remaining() }));
      }
    }
    if (outcome !== 'unknown') this.reschedule(grant);
    return outcome;
  }

  readonly #wakeBy = (time: number, now = this.clock.now()): void => {
    if (time >= this.#wakesAt || this.grants.size === 0) return;
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#wakesAt = time;
    this.#timer = this.clock.setTimer(
      () => {
        this.#renewDue();
      },
      // Rounded up: a timer that fires a fraction early would find nothing due and spin.
      Math.min(Math.max(Math.ceil(time - now), 1), LONGEST_TIMER),
      // In an outage no socket may be left that keeps a holder alive, and a leader would end without an error.
      this.backend.locksEndWithProcess !== true,
    );
  };

  #sleep(): void {
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
    this.#wakesAt = Infinity;
  }
}

const LONGEST_TIMER = 2 ** 31 - 1;

function retryOf({ lease }: HeldGrant): number {
  return Math.min(lease * RETRY_FRACTION, RETRY_AT_MOST);
}
