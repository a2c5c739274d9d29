import type { Clock, Timer } from '../../api/clock.js';
import type { LossReason } from '../../api/errors.js';
import type { LockBackend, RenewOutcome } from '../../api/lock-provider.js';
import type { KeyRequest } from './key-request.js';
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
  readonly #requests = new DenseSet<KeyRequest>();
  #timer: Timer | undefined;
  #wakesAt = Infinity;
  #knownSuspensions = 0;

  constructor(
    private readonly backend: Pick<LockBackend, 'locksEndWithProcess'>,
    private readonly clock: Clock,
    private readonly suspension: SuspensionDetector,
  ) {}

  /** The requests that it renews, in no order. */
  get requests(): readonly KeyRequest[] {
    return this.#requests.values();
  }

  /** The request was granted at `now`. */
  add(request: KeyRequest, now: number): void {
    this.#requests.add(request);
    this.#wakeBy(request.nextWake, now);
  }

  /** The request is given back or lost. */
  remove(request: KeyRequest): void {
    if (this.#requests.delete(request) && this.#requests.size === 0) this.#sleep();
  }

  /** The times of the request have changed. */
  reschedule(request: KeyRequest): void {
    // In no caller's context: this timer and those that follow it would keep that context alive.
    if (this.#requests.has(request)) detached(this.#wakeBy, request.nextWake, this.clock.now());
  }

  /** Renews the request now. */
  renew(request: KeyRequest): Promise<RenewOutcome> {
    const outcome = this.#send(request, this.suspension.observe());
    // Its lease may have become shorter, and its deadline with it.
    this.reschedule(request);
    return outcome;
  }

  /** Renews now all that are renewed at all: after a reconnect, before callers that wait ask; and after a suspension. */
  renewAll(): void {
    for (const request of this.requests) request.held.hurry();
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
    for (const request of this.requests) request.lose(reason);
  }

  #renewDue(): void {
    this.#sleep();
    const now = this.clock.now();
    const due: KeyRequest[] = [];
    for (const request of this.requests) {
      request.expireHolders(now);
      if (this.#requests.has(request) && request.held.isDue(now)) due.push(request);
    }
    if (due.length > 0) {
      const suspensions = this.suspension.observe();
      for (const request of due) void this.#send(request, suspensions);
    }
    let next = Infinity;
    for (const request of this.requests) next = Math.min(next, request.nextWake);
    this.#wakeBy(next, now);
  }

  /** @param suspensions how many there were before it is sent */
  async #send(request: KeyRequest, suspensions: number): Promise<RenewOutcome> {
    const outcome = await request.renewNow(suspensions);
    if (outcome !== 'unknown') this.reschedule(request);
    return outcome;
  }

  readonly #wakeBy = (time: number, now: number): void => {
    if (time >= this.#wakesAt || this.#requests.size === 0) return;
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
