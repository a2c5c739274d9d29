import type { LossReason } from '../../api/errors.js';
import type { Grant, RenewOutcome } from '../../api/lock-provider.js';
import type { KeyQueue } from '../acquire/key-queue.js';
import type { KeyRequest } from '../acquire/key-request.js';
import type { Placed } from '../toolkit/dense-set.js';
import { Few } from '../toolkit/few.js';
import { retainedUntil } from '../toolkit/validity.js';
import { Cohort } from './cohort.js';
import { HeldLease } from './held-lease.js';
import type { Holder } from './holder.js';

/**
 * What a backend has granted to this process: one holder at a time has it, or readers together. It ends when it is given back or lost.
 *
 * Its questions look at the clock and change nothing. {@link expire} ends a grant that is over by the clock; each question of a user is preceded by it.
 */
export class HeldGrant implements Placed {
  /** Among what this process holds. */
  place = -1;
  readonly lease: HeldLease;
  #isHeld = true;
  readonly #fencingToken: bigint | null;
  /** If there are callers that may have it after its present holder. */
  readonly #cohort: Cohort | undefined;
  /** Those that hold by it: one, or readers. */
  readonly #holders = new Few<Holder>();
  /** No holder ends before this time, on the monotonic clock. It may be too early: the end of a holder that has left still counts. */
  #firstEnd: number | undefined;
  /** A lock was made of it. Before that an attempt may still fail for another key, and then no task has run. */
  #isUsed = false;

  /**
   * @param suspensions how many suspensions of the machine were known when it was asked for
   * @param grantedAt on the monotonic clock
   */
  constructor(
    readonly request: KeyRequest,
    readonly queue: KeyQueue,
    grant: Grant,
    suspensions: number,
    readonly grantedAt: number,
  ) {
    this.lease = new HeldLease(grant, suspensions);
    this.#fencingToken = grant.fencingToken;
    if (!grant.followers) return;
    // Limited grants are handed on side by side. Where the same callers come again and again, some would each time be the last of a grant, and
    // have half as many turns as the others. So a grant ends one caller earlier, or not, at random.
    const skipped = request.limited && queue.core.random.fraction() < 0.5 ? 1 : 0;
    this.#cohort = new Cohort(grant, grantedAt, queue.arrivals - skipped);
  }

  get phase(): 'granted' {
    return 'granted';
  }

  /** It was neither given back nor lost, as far as is known. It looks at no clock. */
  get isHeld(): boolean {
    return this.#isHeld;
  }

  /** The token of its latest holder. */
  get fencingToken(): bigint | null {
    return this.#cohort === undefined ? this.#fencingToken : this.#cohort.fencingToken;
  }

  /** Its next holder is the first one, which the backend knows by its id. */
  get isFirst(): boolean {
    return this.#holders.size === 0 && this.#cohort?.isHandedOff !== true;
  }

  /** Until when the key stays retained after a release at `now` (`minHold`); 0 if it is freed, as it is before a lock was made of the grant. */
  keepUntil(now: number): number {
    const { minHold } = this.request;
    return minHold === 0 || !this.#isUsed ? 0 : retainedUntil(this.grantedAt, minHold, now);
  }

  /** Those that hold by it, as they are now. */
  get holders(): readonly Holder[] {
    return this.#holders.values();
  }

  /** How many hold by it. */
  get holderCount(): number {
    return this.#holders.size;
  }

  /** When something is to be done about it: a renewal is due, or it or a holder ends. On the monotonic clock. */
  get nextWake(): number {
    const { renewAt, validUntil } = this.lease;
    return Math.min(renewAt, validUntil, this.#firstEnd ?? Infinity);
  }

  /** Whether it is surely ours, by the clock. */
  isValid(now: number): boolean {
    return this.#isHeld && now < this.lease.validUntil;
  }

  /** Whether the machine was not suspended since the last acknowledged command was sent. */
  isVerified(): boolean {
    return this.lease.isVerified(this.queue.core.suspension.observe());
  }

  /** Whether the caller with this number may hold by it after its present holder, at the end of which that is asked: the next of a cohort. */
  mayServe(arrival: number, now: number): boolean {
    const { mode, minHold } = this.request;
    return (
      this.#cohort !== undefined &&
      this.#cohort.mayInclude(arrival, now) &&
      mode !== 'shared' &&
      minHold === 0 &&
      now < this.lease.validUntil &&
      // A look that costs less than `isVerified()`.
      this.lease.isVerified(this.queue.core.suspension.observeGrant(now))
    );
  }

  /** The next caller of the cohort holds by it, with the next token. */
  handOff(): void {
    this.#cohort?.handOff();
  }

  /** It is not handed off any more. */
  endCohort(): void {
    this.#cohort?.close();
  }

  add(holder: Holder): void {
    this.#holders.add(holder);
  }

  /** Answers how many are left. */
  remove(holder: Holder): number {
    this.#holders.delete(holder);
    return this.#holders.size;
  }

  /** One of its holders ends at this time, on the monotonic clock. */
  endsAt(time: number): void {
    this.#firstEnd = Math.min(this.#firstEnd ?? Infinity, time);
  }

  /** A lock was made of it. */
  use(): void {
    this.#isUsed = true;
  }

  /** From now on it is renewed to `lease` ms. Beside other holders it is never shortened. */
  changeLease(length: number): void {
    const { lease } = this;
    if (length === lease.length) return;
    this.endCohort();
    lease.change(this.#holders.size > 1 ? Math.max(length, lease.length) : length);
  }

  /**
   * Renews it now. Resolves to `unknown` when the backend does not answer. A renewal that is answered after the deadline finds the loss.
   *
   * @param suspensions how many suspensions of the machine are known
   */
  async renewNow(suspensions: number): Promise<RenewOutcome> {
    const { backend, clock, observer, reachability } = this.queue.core;
    const { lease } = this;
    const now = clock.now();
    this.expire(now);
    if (!this.#isHeld) return 'lost';
    const number = lease.beginRenewal(now);
    let outcome: RenewOutcome;
    try {
      outcome = await backend.renew(this.request, lease.length);
    } catch (error) {
      reachability.failed(error);
      outcome = 'unknown';
    }
    if (outcome === 'lost') this.lose('revoked');
    else this.expire(clock.now());
    // Released or lost by now, it concerns nobody.
    if (!this.isHeld) return outcome;
    if (outcome !== 'unknown' && outcome !== 'lost') {
      lease.acknowledged(number, outcome.validUntil, suspensions);
      reachability.answered();
    }
    for (const holder of this.holders) observer.renewed(holder, outcome !== 'unknown');
    return outcome;
  }

  /** Loses it, if it is over by the clock. */
  expire(now: number): void {
    if (this.#isHeld && now >= this.lease.validUntil) this.lose('expired');
  }

  /** Loses what is over by the clock: the grant, or a holder. */
  expireHolders(now: number): void {
    this.expire(now);
    if (this.#firstEnd === undefined || now < this.#firstEnd) return;
    this.#firstEnd = undefined;
    for (const holder of this.holders) holder.expire(now);
    for (const { endsAt } of this.holders) this.endsAt(endsAt);
  }

  /** Ends it as lost, unless it has ended already. */
  lose(reason: LossReason, cause?: unknown): void {
    if (this.#isHeld) this.queue.lose(this, reason, cause);
  }

  /** It is given back or lost. */
  end(): void {
    this.#isHeld = false;
  }
}
