import type { Clock } from '../../../api/clock.js';
import type { LimitShare } from '../../../api/lock-mode.js';
import type { AcquireRequest } from '../../../api/lock-provider.js';
import { firstToken } from '../../../core/toolkit/fencing-token.js';
import { pause } from '../../../core/toolkit/timing.js';
import { isContention } from '../connection/failure.js';
import { admits, isGranted, type Lease, type LeaseHold } from './lease.js';
import { type LeaseTable, toMicroseconds } from './lease-table.js';
import type { LimitedLeases } from './limited-leases.js';

/** A lease that a request has. */
export interface GrantedLease {
  /** The token of its first caller. */
  readonly fencingToken: bigint | null;
  /** How many callers may have it behind the first. */
  readonly followers: number;
  /** For how many ms the row keeps it. */
  readonly remaining: number;
}

/**
 * A lease that a look has found in the row. It shows that a claim was executed, not that it survives a failover: Postgres shows a row whose COMMIT
 * waits for a standby as soon as the connection of that COMMIT has ended. If that standby is promoted, it does not have the row, and grants the
 * lease to another caller.
 */
export interface FoundLease extends GrantedLease {
  /** The statement that put it there was acknowledged, so it survives. Otherwise it counts from the first renewal that is acknowledged. */
  readonly isAcknowledged: boolean;
}

/** The statements by which one request takes, renews and frees its lease. Each kind of lease has its own. */
export interface LeaseClaim {
  /**
   * Whether the request is in the row, or a statement that puts it there was sent and may still arrive: then it has to be released. A look
   * changes nothing.
   */
  readonly sent: boolean;
  /** Compares what was sent with the row, or with its absence. Gives the lease if the request has it there. */
  look(seen: Lease | undefined): FoundLease | undefined | Promise<FoundLease | undefined>;
  /** Whether a claim may be granted on a row in which {@link look} has found no lease of this request. */
  fits(seen: Lease): boolean;
  /** Asks for the lease. Undefined if another claim was faster, or if only the next look shows the outcome. */
  claim(seen: Lease): Promise<GrantedLease | undefined>;
  /** Renews the lease to `duration` ms from now. Resolves to whether the request still had it. */
  renew(duration: number): Promise<boolean>;
  /** Frees whatever was sent, or retains the lease for `keepFor` ms. Resolves to whether the request had the lease. */
  release(keepFor: number): Promise<boolean>;
}

/** The claim to a lease that one request has alone. */
export class ExclusiveClaim implements LeaseClaim {
  /** The version that a claim compares with that was sent and not answered: it may arrive at any time. */
  #unanswered: bigint | undefined;
  /** The version of the lease that it has: the last of the tokens that its callers may use. */
  #held: bigint | undefined;
  /** The version of the last claim or renewal that was acknowledged. */
  #acknowledged: bigint | undefined;

  /** @param name of the row */
  constructor(
    private readonly leases: LeaseTable,
    private readonly name: string,
    private readonly request: AcquireRequest,
  ) {}

  get sent(): boolean {
    return this.#held !== undefined || this.#unanswered !== undefined;
  }

  look(seen: Lease | undefined): FoundLease | undefined {
    // A claim that was not answered has arrived or never will, if the version is another one.
    if (seen?.version !== this.#unanswered) this.#unanswered = undefined;
    const own = seen?.holds.find(({ holder }) => holder === this.request.id);
    this.#held = own?.token;
    if (!seen || !own) return undefined;
    const isAcknowledged = own.token === this.#acknowledged;
    return { fencingToken: own.token, followers: 0, remaining: remainingOf(seen, own), isAcknowledged };
  }

  fits({ holds }: Lease): boolean {
    return holds.length === 0;
  }

  async claim(seen: Lease): Promise<GrantedLease | undefined> {
    const { id, mode, lease, minHold } = this.request;
    const duration = Math.max(lease, minHold);
    const callers = minHold > 0 ? 1 : this.request.callers;
    const earlier = this.#unanswered;
    this.#unanswered = seen.version;
    const version = await unlessUndone(this.leases.claim(this.name, seen, id, duration, callers));
    this.#held = version;
    if (version === undefined) {
      this.#unanswered = earlier;
      return undefined;
    }
    this.#unanswered = undefined;
    this.#acknowledged = version;
    return { fencingToken: firstToken(mode, version, callers), followers: callers - 1, remaining: duration };
  }

  async renew(duration: number): Promise<boolean> {
    const version = this.#held;
    if (version === undefined) return false;
    const isRenewed = await this.leases.renew({ name: this.name, holder: this.request.id, version }, duration);
    if (isRenewed) this.#acknowledged = version;
    return isRenewed;
  }

  /** A claim that was not answered is made void first: in the other order it could arrive between the two. */
  async release(keepFor: number): Promise<boolean> {
    const { leases, name } = this;
    const holder = this.request.id;
    if (this.#unanswered === undefined && this.#held !== undefined && keepFor === 0) {
      return leases.free({ name, holder, version: this.#held });
    }
    if (this.#unanswered !== undefined) {
      await leases.voidClaim(name, this.#unanswered);
      this.#unanswered = undefined;
    }
    return leases.release(name, holder, keepFor);
  }
}

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

/** For how many ms the row keeps a hold. */
export function remainingOf({ serverTime }: Lease, { expires }: LeaseHold): number {
  return (expires - serverTime) / 1000;
}

/** The answer to a claim. Undefined also where the server has undone it: another transaction had the row. */
export async function unlessUndone<T>(claim: Promise<T>): Promise<T | undefined> {
  try {
    return await claim;
  } catch (error) {
    if (isContention(error)) return undefined;
    throw error;
  }
}
