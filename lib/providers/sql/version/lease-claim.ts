import type { Clock } from '../../../api/clock.js';
import type { AcquireRequest } from '../../../api/lock-provider.js';
import { firstToken } from '../../../core/toolkit/fencing-token.js';
import { pause } from '../../../core/toolkit/timing.js';
import { isContention } from '../connection/failure.js';
import { admits, isGranted, type Lease, type LeaseHold } from './lease.js';
import { type LeaseTable, toMicroseconds } from './lease-table.js';
import type { LimitedLeases, NewHolder } from './limited-leases.js';

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

// For how long a reservation may arrive after it was sent, in ms.
const RESERVE_WITHIN = 500;

/**
 * One request's claim to a lease, alone or as one of its limited holders: the statements that take, renew and free it.
 *
 * A caller with a slow connection could lose each race for a place against a fast one that comes and goes. So after the first that it has lost,
 * it reserves a place behind all others, and the next look shows whether there is room for it.
 */
export class LeaseClaim {
  /** The request is in the row: it was granted, or has reserved a place. */
  #isThere = false;
  /** Its token there, the last of those that its callers may use. */
  #token = 0n;
  /** The last statement that has put it there, or has renewed it, was acknowledged. */
  #isAcknowledged = false;
  /** The version that a claim compares with that was sent and not answered: it may arrive at any time. */
  #unanswered: bigint | undefined;
  /** Until when a reservation that was sent and not answered may arrive, in µs of the server's time. */
  #unansweredUntil = -Infinity;
  /** Another claim was faster. */
  #hasLost = false;

  /** @param name of the row */
  constructor(
    private readonly clock: Clock,
    private readonly leases: LeaseTable,
    private readonly places: LimitedLeases,
    private readonly name: string,
    private readonly request: AcquireRequest,
  ) {}

  /**
   * Whether the request is in the row, or a statement that puts it there was sent and may still arrive: then it has to be released. A look
   * changes nothing.
   */
  get sent(): boolean {
    return this.#isThere || this.#unanswered !== undefined || this.#unansweredUntil > 0;
  }

  /** Compares what was sent with the row, or with its absence. Gives the lease if the request has it there. */
  async look(seen: Lease | undefined): Promise<FoundLease | undefined> {
    // A claim that was not answered has arrived or never will, if the version is another one.
    if (seen?.version !== this.#unanswered) this.#unanswered = undefined;
    if (!seen || seen.serverTime > this.#unansweredUntil) this.#unansweredUntil = -Infinity;
    const own = seen?.holds.find((hold) => this.#isOwn(hold));
    this.#isThere = own !== undefined;
    if (!seen || !own) return undefined;
    this.#token = own.token;
    if (!own.limited || isGranted(seen, own)) {
      return { ...this.#granted(own.token, 1, remainingOf(seen, own)), isAcknowledged: this.#isAcknowledged };
    }
    // The reserved place has no room.
    await this.places.release(this.name, this.request.id, 0);
    this.#isThere = false;
    return undefined;
  }

  /**
   * Whether a claim may be granted on a row in which {@link look} has found no lease of this request. Not where it has just left its place: the row
   * still names it.
   */
  fits({ holds }: Lease): boolean {
    return admits(holds, this.request.limited) && !holds.some((hold) => this.#isOwn(hold));
  }

  /** Asks for the lease. Undefined if another claim was faster, or if only the next look shows the outcome. */
  async claim(seen: Lease): Promise<GrantedLease | undefined> {
    const { name } = this;
    const { id: holder, lease, minHold, limited } = this.request;
    const duration = Math.max(lease, minHold);
    const callers = minHold > 0 ? 1 : this.request.callers;
    this.#isAcknowledged = false;
    if (limited && this.#hasLost) return this.#reserve({ name, seen, holder, limited }, duration);
    const earlier = this.#unanswered;
    this.#unanswered = seen.version;
    const token = await unlessUndone(
      limited
        ? this.places.claim({ name, seen, holder, limited }, duration)
        : this.leases.claim(name, seen, holder, duration, callers),
    );
    this.#isThere = this.#isAcknowledged = token !== undefined;
    this.#hasLost = token === undefined;
    this.#unanswered = token === undefined ? earlier : undefined;
    if (token === undefined) return undefined;
    this.#token = token;
    return this.#granted(token, callers, duration);
  }

  /** Renews the lease to `duration` ms from now. Resolves to whether the request still had it. */
  async renew(duration: number): Promise<boolean> {
    const { id: holder, limited } = this.request;
    if (!this.#isThere) return false;
    const isRenewed = await (limited
      ? this.places.renew(this.name, holder, duration)
      : this.leases.renew({ name: this.name, holder, version: this.#token }, duration));
    if (isRenewed) this.#isAcknowledged = true;
    return isRenewed;
  }

  /**
   * Frees whatever was sent, or retains the lease for `keepFor` ms. Resolves to whether the request had the lease.
   *
   * A claim that was not answered is made void first: in the other order it could arrive between the two. A reservation cannot be made
   * void, so the release waits until that cannot arrive any more.
   */
  async release(keepFor: number): Promise<boolean> {
    const { leases, name } = this;
    const { id: holder, limited } = this.request;
    if (this.#unanswered !== undefined) await leases.voidClaim(name, this.#unanswered);
    // Together with others.
    else if (this.#isThere && keepFor === 0 && !limited) {
      return leases.free({ name, holder, version: this.#token });
    }
    this.#unanswered = undefined;
    if (this.#unansweredUntil > 0) await this.#outlastReservation();
    return (limited ? this.places : leases).release(name, holder, keepFor);
  }

  async #reserve(added: NewHolder, duration: number): Promise<undefined> {
    const earlier = this.#unansweredUntil;
    this.#unansweredUntil = added.seen.serverTime + toMicroseconds(RESERVE_WITHIN);
    const isReserved = await unlessUndone(this.places.reserve(added, duration, this.#unansweredUntil));
    this.#isThere = this.#isAcknowledged = isReserved === true;
    this.#unansweredUntil = earlier;
  }

  async #outlastReservation(): Promise<void> {
    const seen = await this.leases.read(this.name);
    const remaining = seen ? (this.#unansweredUntil - seen.serverTime) / 1000 : 0;
    // At most that long, although the clock of the server may have been set back.
    if (remaining > 0) await pause(this.clock, Math.min(remaining, RESERVE_WITHIN), new AbortController().signal, true);
    this.#unansweredUntil = -Infinity;
  }

  #granted(token: bigint, callers: number, remaining: number): GrantedLease {
    return { fencingToken: firstToken(this.request.mode, token, callers), followers: callers - 1, remaining };
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
async function unlessUndone<T>(claim: Promise<T>): Promise<T | undefined> {
  try {
    return await claim;
  } catch (error) {
    if (isContention(error)) return undefined;
    throw error;
  }
}
