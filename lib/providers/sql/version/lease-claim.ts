import type { Clock } from '../../../api/clock.js';
import type { AcquireRequest, Grant, RenewOutcome } from '../../../api/lock-provider.js';
import { firstToken } from '../../../core/toolkit/fencing-token.js';
import { pause } from '../../../core/toolkit/timing.js';
import { validUntil } from '../../../core/toolkit/validity.js';
import { isContention } from '../connection/failure.js';
import { admits, isGranted, type Lease, type LeaseHold } from './lease.js';
import { type LeaseTable, toMicroseconds } from './lease-table.js';
import type { LimitedLeases, NewHolder } from './limited-leases.js';

// How long after it is sent a reservation may take effect, in ms.
const RESERVE_WITHIN = 500;

/**
 * A request's claim to a lease, as its only holder or one of a limited number. Sends the statements that acquire,
 * renew, and free it.
 *
 * A caller with a slow connection could lose every race against a fast one. So after the first loss, it reserves a
 * position behind all others, and the next read shows whether there is room for it.
 */
export class LeaseClaim {
  /** Whether the request is in the row, with a grant or a reserved position. */
  #isThere = false;
  /** The request's token in the row: the last token its callers may use. */
  #token = 0n;
  /** Whether the last statement that wrote or renewed it was acknowledged. */
  #isAcknowledged = false;
  /** The version checked by an unanswered claim that may still take effect. */
  #unanswered: bigint | undefined;
  /** The server time, in µs, until which an unanswered reservation may take effect. */
  #unansweredUntil = -Infinity;
  /** Whether another claim was faster. */
  #hasLost = false;
  /** The token of the last position that was given up. */
  #givenUp: bigint | undefined;
  /** When `minHold` ends. */
  #keepUntil = -Infinity;

  /** @param name the row's name */
  constructor(
    private readonly clock: Clock,
    private readonly leases: LeaseTable,
    private readonly places: LimitedLeases,
    private readonly name: string,
    private readonly request: AcquireRequest,
  ) {}

  /**
   * Whether the request is in the row or a statement in flight may still write it. If so, it must be released.
   * Reads don't count.
   */
  get sent(): boolean {
    return this.#isThere || this.#unanswered !== undefined || this.#unansweredUntil > 0;
  }

  /**
   * Updates the state from a row whose read was sent at `readAt`. Resolves to a grant if the request holds the lease,
   * or to `gone` if the row must be read again, because the lease expired or was freed since then.
   *
   * A lease that is found proves that a claim was executed, but not that the lease survives a failover: Postgres shows
   * a row whose COMMIT is waiting for a standby as soon as the committing connection has ended. If that standby is
   * promoted, it doesn't have the row and grants the lease to another caller. So unless the statement that wrote the
   * lease was acknowledged, the grant counts only from an acknowledged renewal.
   */
  async find(seen: Lease | undefined, readAt: number): Promise<Grant | 'gone' | undefined> {
    // If the version has changed, an unanswered claim either has taken effect or never will.
    if (seen?.version !== this.#unanswered) this.#unanswered = undefined;
    if (!seen || seen.serverTime > this.#unansweredUntil) this.#unansweredUntil = -Infinity;
    const own = seen?.holds.find(({ holder }) => holder === this.request.id);
    this.#isThere = own !== undefined;
    if (!seen || !own) return undefined;
    this.#token = own.token;
    const isGivenUp = own.token === this.#givenUp;
    if (!isGivenUp && (!own.limited || isGranted(seen, own))) {
      if (this.#isAcknowledged) return this.#granted(1, readAt, remainingOf(seen, own));
      const sentAt = this.clock.now();
      return (await this.#renew(this.#duration)) ? this.#granted(1, sentAt, this.#duration) : 'gone';
    }
    // There is no room for the reserved position. From now on it is never granted, even if the release fails, because
    // the server may still execute it.
    this.#givenUp = own.token;
    await this.places.giveUp(this.name, this.request.id, own.token);
    this.#isThere = false;
    // Since an earlier read found no room, there may be some.
    return isGivenUp ? 'gone' : undefined;
  }

  /**
   * Whether a claim could be granted, given a row in which {@link find} found no lease for this request. This doesn't
   * apply right after the request gives up its position, because `seen` still contains that position.
   */
  fits({ holds }: Lease): boolean {
    return admits(holds, this.request.limited) && !holds.some(({ holder }) => holder === this.request.id);
  }

  /**
   * Claims the lease. Resolves to undefined if another claim was faster, or if only the next read will show the
   * outcome.
   */
  async claim(seen: Lease): Promise<Grant | undefined> {
    const { name } = this;
    const { id: holder, minHold, limited } = this.request;
    const callers = minHold > 0 ? 1 : this.request.callers;
    const sentAt = this.clock.now();
    this.#isAcknowledged = false;
    if (limited && this.#hasLost) return this.#reserve({ name, seen, holder, limited });
    const earlier = this.#unanswered;
    this.#unanswered = seen.version;
    const token = await unlessUndone(
      limited
        ? this.places.claim({ name, seen, holder, limited }, this.#duration)
        : this.leases.claim({ name, seen, holder }, this.#duration, callers),
    );
    this.#isThere = this.#isAcknowledged = token !== undefined;
    this.#hasLost = token === undefined;
    this.#unanswered = token === undefined ? earlier : undefined;
    if (token === undefined) return undefined;
    this.#token = token;
    return this.#granted(callers, sentAt, this.#duration);
  }

  async renew(lease: number): Promise<RenewOutcome> {
    const sentAt = this.clock.now();
    // A crash must not shorten `minHold`.
    const isRenewed = await this.#renew(Math.max(lease, this.#keepUntil - sentAt));
    return isRenewed ? { validUntil: validUntil(sentAt, lease) } : 'lost';
  }

  /** Renews the lease to `duration` ms from now. Resolves to whether the request still held it. */
  async #renew(duration: number): Promise<boolean> {
    const { id: holder, limited } = this.request;
    if (!this.#isThere) return false;
    const held = { name: this.name, holder, version: this.#token };
    const isRenewed = await (limited ? this.places : this.leases).renew(held, duration);
    if (isRenewed) this.#isAcknowledged = true;
    return isRenewed;
  }

  /**
   * Undoes whatever was sent, or retains the lease for `keepFor` ms. Resolves to whether the request held the lease.
   *
   * Voids an unanswered claim first, because it could still take effect. A reservation can't be
   * voided, so the release waits until it can no longer take effect.
   */
  async release(keepFor: number): Promise<boolean> {
    const { leases, name } = this;
    const { id: holder, limited } = this.request;
    if (this.#unanswered !== undefined) await leases.voidClaim(name, this.#unanswered);
    // Batched with other releases.
    else if (this.#isThere && keepFor === 0 && !limited) {
      return leases.free({ name, holder, version: this.#token });
    }
    this.#unanswered = undefined;
    if (this.#unansweredUntil > 0) await this.#outlastReservation();
    return (limited ? this.places : leases).release(name, holder, keepFor);
  }

  async #reserve(added: NewHolder): Promise<undefined> {
    const earlier = this.#unansweredUntil;
    this.#unansweredUntil = added.seen.serverTime + toMicroseconds(RESERVE_WITHIN);
    const isReserved = await unlessUndone(this.places.reserve(added, this.#duration, this.#unansweredUntil));
    this.#isThere = this.#isAcknowledged = isReserved === true;
    this.#unansweredUntil = earlier;
  }

  async #outlastReservation(): Promise<void> {
    const seen = await this.leases.read(this.name);
    const remaining = seen ? (this.#unansweredUntil - seen.serverTime) / 1000 : 0;
    // Limit the wait in case the server's clock was set back.
    if (remaining > 0) await pause(this.clock, Math.min(remaining, RESERVE_WITHIN), new AbortController().signal, true);
    this.#unansweredUntil = -Infinity;
  }

  /** How long the row is to keep the lease, in ms. */
  get #duration(): number {
    return Math.max(this.request.lease, this.request.minHold);
  }

  /** @param remaining how long the row keeps the lease, in ms from when the statement was sent */
  #granted(callers: number, sentAt: number, remaining: number): Grant {
    const { lease, minHold, mode } = this.request;
    if (minHold > 0) this.#keepUntil = this.clock.now() + Math.min(remaining, minHold);
    const fencingToken = firstToken(mode, this.#token, callers);
    return { lease, fencingToken, followers: callers - 1, validUntil: validUntil(sentAt, Math.min(lease, remaining)) };
  }
}

/** How much longer the row keeps a hold, in ms. */
export function remainingOf({ serverTime }: Lease, { expires }: LeaseHold): number {
  return (expires - serverTime) / 1000;
}

/** Resolves to undefined if the server rolled the claim back because of another transaction. */
async function unlessUndone<T>(claim: Promise<T>): Promise<T | undefined> {
  try {
    return await claim;
  } catch (error) {
    if (isContention(error)) return undefined;
    throw error;
  }
}
