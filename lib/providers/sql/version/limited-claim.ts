import type { Clock } from '../../../api/clock.js';
import type { LimitShare } from '../../../api/lock-mode.js';
import type { AcquireRequest } from '../../../api/lock-provider.js';
import { pause } from '../../../core/toolkit/timing.js';
import { admits, isGranted, type Lease, type LeaseHold } from './lease.js';
import { type FoundLease, type GrantedLease, type LeaseClaim, remainingOf, unlessUndone } from './lease-claim.js';
import { toMicroseconds } from './lease-table.js';
import type { LimitedLeases } from './limited-leases.js';

// For how long a reservation may arrive after it was sent, in ms.
const RESERVE_WITHIN = 500;

/**
 * The claim to a place among the limited holders of a lease.
 *
 * A caller with a slow connection could lose each race against a fast one that comes and goes. So after the first that it has lost, it
 * reserves a place behind all others, and the next look shows whether there is room for it.
 */
export class LimitedClaim implements LeaseClaim {
  /** The request is among the holders: it was granted, or has reserved a place. */
  #isThere = false;
  /** The last statement that has put it there, or has renewed it, was acknowledged. */
  #isAcknowledged = false;
  /** The version that a claim compares with that was sent and not answered: it may arrive at any time. */
  #unanswered: bigint | undefined;
  /** Until when a reservation that was sent and not answered may arrive, in µs of the server's time. */
  #unansweredUntil = -Infinity;
  #hasLost = false;

  /** @param name of the row */
  constructor(
    private readonly clock: Clock,
    private readonly places: LimitedLeases,
    private readonly name: string,
    private readonly request: AcquireRequest,
    private readonly limited: LimitShare,
  ) {}

  get sent(): boolean {
    return this.#isThere || this.#unanswered !== undefined || this.#unansweredUntil > 0;
  }

  async look(seen: Lease | undefined): Promise<FoundLease | undefined> {
    // A claim that was not answered has arrived or never will, if the version is another one.
    if (seen?.version !== this.#unanswered) this.#unanswered = undefined;
    if (!seen || seen.serverTime > this.#unansweredUntil) this.#unansweredUntil = -Infinity;
    const own = seen?.holds.find((hold) => this.#isOwn(hold));
    this.#isThere = own !== undefined;
    if (!seen || !own) return undefined;
    if (isGranted(seen, own)) {
      return { ...this.#granted(1, remainingOf(seen, own)), isAcknowledged: this.#isAcknowledged };
    }
    // The reserved place has no room.
    await this.places.release(this.name, this.request.id, 0);
    this.#isThere = false;
    return undefined;
  }

  /** Not where it has just left its place: the row still names it. */
  fits({ holds }: Lease): boolean {
    return admits(holds, this.limited) && !holds.some((hold) => this.#isOwn(hold));
  }

  async claim(seen: Lease): Promise<GrantedLease | undefined> {
    const { name, limited } = this;
    const { id: holder, lease, minHold } = this.request;
    const duration = Math.max(lease, minHold);
    this.#isAcknowledged = false;
    if (this.#hasLost) return this.#reserve(seen, duration);
    const callers = minHold > 0 ? 1 : this.request.callers;
    const earlier = this.#unanswered;
    this.#unanswered = seen.version;
    const token = await unlessUndone(this.places.claim({ name, seen, holder, limited }, duration));
    this.#isThere = this.#isAcknowledged = token !== undefined;
    if (token === undefined) {
      this.#unanswered = earlier;
      this.#hasLost = true;
      return undefined;
    }
    this.#unanswered = undefined;
    return this.#granted(callers, duration);
  }

  async renew(duration: number): Promise<boolean> {
    const isRenewed = await this.places.renew(this.name, this.request.id, duration);
    if (isRenewed) this.#isAcknowledged = true;
    return isRenewed;
  }

  /**
   * A claim that was not answered is made void first: in the other order it could arrive between the two. A reservation cannot be made
   * void, so the release waits until that cannot arrive any more.
   */
  async release(keepFor: number): Promise<boolean> {
    if (this.#unanswered !== undefined) {
      await this.places.leases.voidClaim(this.name, this.#unanswered);
      this.#unanswered = undefined;
    }
    if (this.#unansweredUntil > 0) await this.#outlastReservation();
    return this.places.release(this.name, this.request.id, keepFor);
  }

  async #reserve(seen: Lease, duration: number): Promise<undefined> {
    const { name, limited } = this;
    const earlier = this.#unansweredUntil;
    this.#unansweredUntil = seen.serverTime + toMicroseconds(RESERVE_WITHIN);
    const holder = { name, seen, holder: this.request.id, limited };
    const isReserved = await unlessUndone(this.places.reserve(holder, duration, this.#unansweredUntil));
    this.#isThere = this.#isAcknowledged = isReserved === true;
    this.#unansweredUntil = earlier;
  }

  async #outlastReservation(): Promise<void> {
    const seen = await this.places.leases.read(this.name);
    const remaining = seen ? (this.#unansweredUntil - seen.serverTime) / 1000 : 0;
    // At most that long, although the clock of the server may have been set back.
    if (remaining > 0) await pause(this.clock, Math.min(remaining, RESERVE_WITHIN), new AbortController().signal, true);
    this.#unansweredUntil = -Infinity;
  }

  /** No resource can use the token of a limited lock: it would refuse all holders but the latest. */
  #granted(callers: number, remaining: number): GrantedLease {
    return { fencingToken: null, followers: callers - 1, remaining };
  }

  #isOwn({ holder }: LeaseHold): boolean {
    return holder === this.request.id;
  }
}
