import type { LossReason } from '../../api/errors.js';
import type { Grant, RenewOutcome } from '../../api/lock-provider.js';
import type { KeyQueue } from '../acquire/key-queue.js';
import type { KeyRequest } from '../acquire/key-request.js';
import type { DenseSetItem } from '../toolkit/dense-set.js';
import { SmallSet } from '../toolkit/small-set.js';
import { retainedUntil } from '../toolkit/validity.js';
import { Cohort } from './cohort.js';
import { HeldLease } from './held-lease.js';
import type { Holder } from './holder.js';

/**
 * A grant from the backend to this process, for one holder at a time or several readers together. It ends when it is
 * released or lost.
 *
 * Queries don't change anything. {@link isValid} checks the clock, {@link isHeld} doesn't: before each user query,
 * {@link expire} ends the grant if its lease has expired.
 */
export class HeldGrant implements DenseSetItem {
  slot = -1;
  readonly lease: HeldLease;
  #isHeld = true;
  readonly #fencingToken: bigint | null;
  /** The waiters that may take over the lock, if the backend allows handoffs. */
  readonly #cohort: Cohort | undefined;
  /** The current holder, or the current readers. */
  readonly #holders = new SmallSet<Holder>();
  /** A lower bound on when the first holder reaches its `maxHold`; holders that have left still count. */
  #firstEnd: number | undefined;
  /**
   * Whether a user got a lock under this grant. Until one does, the call may still fail on another key without running
   * a task.
   */
  #isUsed = false;

  /** @param suspensions how many machine suspensions were known when the request was sent */
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
    // Several limited grants serve the queue in parallel. If callers always came back in the same order, some would
    // always be last under a grant and get half as many turns as the others. So a random half of the grants end one
    // caller earlier.
    const skipped = request.limited && queue.core.random.fraction() < 0.5 ? 1 : 0;
    this.#cohort = new Cohort(grant, grantedAt, queue.arrivals - skipped);
  }

  get phase(): 'granted' {
    return 'granted';
  }

  /** Whether the grant is neither released nor known to be lost. Doesn't check the clock. */
  get isHeld(): boolean {
    return this.#isHeld;
  }

  /** The latest holder's token. */
  get fencingToken(): bigint | null {
    return this.#cohort === undefined ? this.#fencingToken : this.#cohort.fencingToken;
  }

  /** Whether the next holder is the first one. The backend knows the first holder by the request's id. */
  get isFirst(): boolean {
    return this.#holders.size === 0 && this.#cohort?.isHandedOff !== true;
  }

  /**
   * The time until which a release at `now` retains the key (`minHold`), or 0 to free it. An unused grant is always
   * freed.
   */
  keepUntil(now: number): number {
    const { minHold } = this.request;
    return minHold === 0 || !this.#isUsed ? 0 : retainedUntil(this.grantedAt, minHold, now);
  }

  /** A snapshot. */
  get holders(): readonly Holder[] {
    return this.#holders.values();
  }

  get holderCount(): number {
    return this.#holders.size;
  }

  /** When the watchdog must act: a renewal is due, the lease expires, or a holder reaches its `maxHold`. */
  get nextWake(): number {
    const { renewAt, validUntil } = this.lease;
    return Math.min(renewAt, validUntil, this.#firstEnd ?? Infinity);
  }

  /** Whether this process definitely holds the lock. */
  isValid(now: number): boolean {
    return this.#isHeld && now < this.lease.validUntil;
  }

  /** Whether the machine has stayed awake since the last acknowledged command was sent. */
  isVerified(): boolean {
    return this.lease.isVerified(this.queue.core.suspension.observe());
  }

  /**
   * Whether the lock may be handed off to the caller with this arrival number. Called when the current holder releases.
   */
  mayServe(arrival: number, now: number): boolean {
    const { mode, minHold } = this.request;
    return (
      this.#cohort !== undefined &&
      this.#cohort.mayInclude(arrival, now) &&
      mode !== 'shared' &&
      minHold === 0 &&
      now < this.lease.validUntil &&
      // Cheaper than `isVerified()`.
      this.lease.isVerified(this.queue.core.suspension.observeGrant(now))
    );
  }

  /** Switches to the next fencing token, for the cohort's next caller. */
  handOff(): void {
    this.#cohort?.handOff();
  }

  /** Prevents further handoffs. */
  endCohort(): void {
    this.#cohort?.close();
  }

  add(holder: Holder): void {
    this.#holders.add(holder);
  }

  /** Returns the number of remaining holders. */
  remove(holder: Holder): number {
    this.#holders.delete(holder);
    return this.#holders.size;
  }

  /** Notes that one of the holders will reach its `maxHold` at this time. */
  endsAt(time: number): void {
    this.#firstEnd = Math.min(this.#firstEnd ?? Infinity, time);
  }

  /** Notes that a user got a lock under this grant. */
  use(): void {
    this.#isUsed = true;
  }

  /**
   * Renews the lease now. Resolves to `unknown` if the backend doesn't respond. If the response arrives after the
   * deadline, the grant is lost.
   *
   * @param suspensions how many machine suspensions are known
   * @param length the lease length of this and later renewals, in ms. If there are other holders, it isn't shortened.
   */
  async renewNow(suspensions: number, length = this.lease.length): Promise<RenewOutcome> {
    const { backend, clock, observer, reachability } = this.queue.core;
    const { lease } = this;
    const now = clock.now();
    this.expire(now);
    if (!this.#isHeld) return 'lost';
    if (length !== lease.length) this.endCohort();
    const number = lease.beginRenewal(now, this.#holders.size > 1 ? Math.max(length, lease.length) : length);
    let outcome: RenewOutcome;
    try {
      outcome = await backend.renew(this.request, lease.length);
    } catch (error) {
      reachability.failed(error);
      outcome = 'unknown';
    }
    if (outcome === 'lost') this.lose('revoked');
    else this.expire(clock.now());
    // If the grant has ended in the meantime, the outcome no longer matters.
    if (!this.isHeld) return outcome;
    if (outcome !== 'unknown' && outcome !== 'lost') {
      lease.acknowledged(number, outcome.validUntil, suspensions);
      reachability.answered();
    }
    for (const holder of this.holders) observer.renewed(holder, outcome !== 'unknown');
    return outcome;
  }

  /** Whether the lease has expired and the grant has not ended yet. */
  hasExpired(now: number): boolean {
    return this.#isHeld && now >= this.lease.validUntil;
  }

  /** Ends the grant as lost if its lease has expired. */
  expire(now: number): void {
    if (this.hasExpired(now)) this.lose('expired');
  }

  /** Ends each holder that has reached its `maxHold`, and the whole grant if its lease has expired. */
  expireHolders(now: number): void {
    this.expire(now);
    if (this.#firstEnd === undefined || now < this.#firstEnd) return;
    this.#firstEnd = undefined;
    for (const holder of this.holders) holder.expire(now);
    for (const { endsAt } of this.holders) this.endsAt(endsAt);
  }

  /** Ends the grant as lost, unless it has already ended. */
  lose(reason: LossReason, cause?: unknown): void {
    if (this.#isHeld) this.queue.lose([this], reason, cause);
  }

  end(): void {
    this.#isHeld = false;
  }
}
