import type { Clock, Timer } from '../../api/clock.js';
import type { Hold } from './hold.js';
import type { LockEventPublisher } from '../events/publisher.js';
import type { Reachability } from '../events/reachability.js';
import type { LockBackend, RenewOutcome } from '../../api/lock-provider.js';
import type { HolderTable } from '../toolkit/holder-table.js';
import type { SuspensionDetector } from '../toolkit/suspension.js';

// A renewal that was not answered is sent again after a tenth of the lease, at most a second: a backend that restarts
// within the lease is found in time, and one that is down is not stormed.
const RETRY_FRACTION = 0.1;
const RETRY_AT_MOST = 1_000;
// Holds that are due within half of that travel with those that are due now. Each look goes over all holds: of 10 000 that were
// taken one after the other, it would otherwise go over all for each few.
const TOGETHER = 0.5;

/**
 * Renews the holds of one provider, and finds those that are lost. One timer for all; renewals that
 * are due together are sent in one tick, and each is answered by itself.
 *
 * It never renews past a deadline: a watchdog that wakes late finds the loss instead.
 */
export class Watchdog {
  #timer: Timer | undefined;
  #wakesAt = Infinity;

  constructor(
    /** All that is held, by holder id. */
    private readonly holds: HolderTable<Hold>,
    private readonly backend: Pick<LockBackend, 'renew'>,
    private readonly clock: Clock,
    private readonly suspension: SuspensionDetector,
    private readonly events: LockEventPublisher,
    private readonly reachability: Reachability,
  ) {}

  /** This hold is among them from now on. */
  added(hold: Hold): void {
    this.#wakeBy(nextWake(hold), hold.grantedAt);
  }

  /** One is not among them any more. Before its release is sent, so that no renewal follows it. */
  removed(): void {
    if (this.holds.size === 0) this.#sleep();
  }

  /** The hold's times have changed. */
  reschedule(hold: Hold): void {
    if (this.holds.has(hold.grant.holder)) this.#wakeBy(nextWake(hold));
  }

  /** Renews everything now: after a reconnect, before waiters ask; and after a suspension. */
  renewAll(): void {
    for (const hold of this.holds.values()) if (hold.renewAt !== Infinity) hold.renewAt = 0;
    this.#renewDue();
  }

  /** Renews one hold now. */
  renew(hold: Hold): Promise<RenewOutcome> {
    const outcome = this.#send(hold, this.suspension.observe());
    // Its lease may have become shorter, and its deadline with it: if this renewal is not answered, the next one follows in time.
    if (hold.renewAt !== Infinity) hold.renewAt = Math.min(hold.renewAt, this.clock.now() + retryOf(hold));
    this.reschedule(hold);
    return outcome;
  }

  #renewDue(): void {
    this.#sleep();
    const now = this.clock.now();
    const due: Hold[] = [];
    let next = Infinity;
    for (const hold of this.holds.values()) {
      // Asking finds the expiry. A lost hold leaves the set by itself.
      if (!hold.isValid()) continue;
      const retry = retryOf(hold);
      if (hold.renewAt - retry * TOGETHER <= now) {
        hold.renewAt = now + retry;
        due.push(hold);
      }
      next = Math.min(next, nextWake(hold));
    }
    this.#wakeBy(next);
    if (due.length === 0) return;
    const suspensions = this.suspension.observe();
    for (const hold of due) void this.#send(hold, suspensions);
  }

  /** @param suspensions how many there were before it is sent */
  async #send(hold: Hold, suspensions: number): Promise<RenewOutcome> {
    const sentAt = this.clock.now();
    const number = hold.beginRenewal();
    let outcome: RenewOutcome;
    try {
      outcome = await this.backend.renew(hold.grant, hold.lease);
    } catch (error) {
      this.reachability.failed(error);
      outcome = 'unknown';
    }
    if (outcome === 'lost') hold.lose('revoked');
    else if (outcome !== 'unknown') {
      hold.confirm(number, outcome.validUntil, suspensions);
      // A provider that has gained next to nothing would be asked again immediately, and again.
      hold.renewAt = Math.max(hold.renewAt, sentAt + retryOf(hold));
    }
    // Released or lost by now, it concerns nobody.
    if (hold.isValid()) {
      if (outcome !== 'unknown') this.reachability.answered();
      const name = outcome === 'unknown' ? 'renewal-failed' : 'renewed';
      this.events.publish(name, () => ({ ...hold.subject, remaining: hold.remaining() }));
    }
    if (outcome !== 'unknown') this.reschedule(hold);
    return outcome;
  }

  #wakeBy(time: number, now = this.clock.now()): void {
    if (time >= this.#wakesAt || this.holds.size === 0) return;
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#wakesAt = time;
    this.#timer = this.clock.setTimer(
      () => {
        this.#renewDue();
      },
      // Rounded up: a timer that fires a fraction early would find nothing due and spin.
      Math.min(Math.max(Math.ceil(time - now), 1), LONGEST_TIMER),
    );
  }

  #sleep(): void {
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
    this.#wakesAt = Infinity;
  }
}

const LONGEST_TIMER = 2 ** 31 - 1;

function retryOf({ lease }: Hold): number {
  return Math.min(lease * RETRY_FRACTION, RETRY_AT_MOST);
}

function nextWake(hold: Hold): number {
  return Math.min(hold.renewAt, hold.validUntil, hold.endsAt);
}
