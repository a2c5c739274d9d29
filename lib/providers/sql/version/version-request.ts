import type {
  AcquireRequest,
  BackendContext,
  Grant,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../../api/lock-provider.js';
import { withAbort } from '../../../core/toolkit/abort-listeners.js';
import { backOff, pause } from '../../../core/toolkit/timing.js';
import { firstToken } from '../../../core/toolkit/token-block.js';
import { validUntil } from '../../../core/toolkit/validity.js';
import { failureOf } from '../connection/failure.js';
import { leaseLabelOf, leaseNameOf } from '../table/lock-name.js';
import type { NameRange } from '../table/purge.js';
import type { Connected, SqlRequest } from '../sql-backend.js';
import { admits, isGranted, type Lease } from './lease.js';
import { type LeaseTable, toMicroseconds } from './lease-table.js';
import type { LimitedLeases } from './limited-leases.js';

// How long before a busy row is looked at again. One look is one indexed read.
const PAUSE = { first: 10, most: 200 };
// How long before the end of the wait the last look is made, in ms.
const LAST_LOOK = 50;
// How many claims of others may be faster than those of a request that does not wait.
const MOST_LOST = 5;
// For how long a place behind limited holders may be reserved by a statement that was sent, in ms.
const RESERVE_WITHIN = 500;

/** The database of the leases, connected: a server, or SQLite. */
export interface LeaseDatabase extends Connected {
  readonly leases: LeaseTable;
  readonly limited: LimitedLeases;
  /** Deletes the rows that nobody has used for this many ms, in a range or all, and resolves to their number. */
  purge(unusedFor: number, range?: NameRange): Promise<number>;
}

/** One request for one lease, from its first look to its release. */
export class VersionRequest implements SqlRequest {
  #isReleased = false;
  /** Its caller has left. `request.wait` does not show it: that has run down to 0 by then, as for a request that never waits. */
  #hasLeft = false;
  #isWaiting = false;
  /** Since when it looks or claims without an answer, on the monotonic clock. */
  #askedAt: number | undefined;
  /** The version with which a claim compares that was sent and not answered: it may arrive at any time. */
  #openClaim: bigint | undefined;
  /** Until when a reservation that was sent and not answered may arrive, in µs of the server's time. */
  #openUntil = -Infinity;
  /** The row may be ours, or a place in it: a claim was sent, or we were found there. A look changes nothing. */
  #mayHold = false;
  #keepUntil = -Infinity;
  /** The version of its hold: the last of the tokens that its callers may use. */
  #version = 0n;
  readonly #name: string;

  constructor(
    private readonly context: BackendContext,
    private readonly database: LeaseDatabase,
    private readonly request: AcquireRequest,
  ) {
    this.#name = leaseNameOf(context.namespace, request.key);
  }

  get unansweredFor(): number {
    return this.#askedAt === undefined ? 0 : this.context.clock.now() - this.#askedAt;
  }

  async renew(lease: number): Promise<RenewOutcome> {
    const name = this.#name;
    const { id: holder, mode } = this.request;
    const { leases, limited } = this.database;
    const sentAt = this.context.clock.now();
    // A crash must not cut `minHold` short.
    const duration = Math.max(lease, this.#keepUntil - sentAt);
    const isRenewed =
      mode === 'limited'
        ? await limited.renew(name, holder, duration)
        : await leases.renew({ name, holder, version: this.#version }, duration);
    return isRenewed ? { validUntil: validUntil(sentAt, lease) } : 'lost';
  }

  /** Asks, again and again while `request.wait` lasts. A repeated call finds the hold that an unanswered one has left. */
  acquire(): Promise<Grant | 'busy'> {
    const { request } = this;
    if (request.wait <= 0) return this.#claimWhenFree();
    this.#isWaiting = false;
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#hasLeft = true;
        // The row was busy when it was seen last. But a claim that is in flight may be granted, so its answer decides.
        if (this.#isWaiting && !this.#mayHold) resolve('busy');
      };
      withAbort(request.signal, leave, () => this.#claimWhenFree()).then(resolve, reject);
    });
  }

  /**
   * Ends it, in whatever state it is. A claim that was not answered is made void first: in the other order it could arrive
   * between the two. For a reservation it waits until that cannot arrive any more. Without a claim there is nothing to release: in an
   * outage each caller would leave a statement that is repeated for a whole lease.
   */
  async release({ keepFor }: ReleaseOptions): Promise<ReleaseOutcome> {
    this.#isReleased = true;
    if (!this.#mayHold) return 'lost';
    const { leases, limited } = this.database;
    const { id: holder, mode } = this.request;
    const name = this.#name;
    try {
      const isKnown = !this.#mayArrive && this.#version > 0n;
      if (this.#openClaim !== undefined) await leases.voidClaim(name, this.#openClaim);
      this.#openClaim = undefined;
      if (this.#openUntil > 0) await this.#outlastReservation();
      let isReleased: boolean;
      if (mode === 'limited') isReleased = await limited.release(name, holder, keepFor);
      else if (isKnown && keepFor === 0) isReleased = await leases.free({ name, holder, version: this.#version });
      else isReleased = await leases.release(name, holder, keepFor);
      return isReleased ? 'released' : 'lost';
    } catch {
      return 'unknown';
    }
  }

  async #outlastReservation(): Promise<void> {
    const { clock } = this.context;
    const seen = await this.database.leases.read(this.#name);
    const remaining = seen ? (this.#openUntil - seen.serverTime) / 1000 : 0;
    // At most that long, although the clock of the server may have been set back.
    if (remaining > 0) await pause(clock, Math.min(remaining, RESERVE_WITHIN), new AbortController().signal, true);
    this.#openUntil = -Infinity;
  }

  async #claimWhenFree(): Promise<Grant | 'busy'> {
    const { request } = this;
    const { clock, random } = this.context;
    const { leases, limited } = this.database;
    const waitUntil = clock.now() + request.wait;
    let lost = 0;
    for (let round = 0; ;) {
      const sentAt = clock.now();
      this.#askedAt = sentAt;
      const seen = await leases.read(this.#name);
      if (this.#isReleased) return 'busy';
      // A claim that was not answered has arrived or never will, if the version is another one.
      if (seen?.version !== this.#openClaim) this.#openClaim = undefined;
      if (!seen || seen.serverTime > this.#openUntil) this.#openUntil = -Infinity;
      const own = seen?.holds.find(({ holder }) => holder === request.id);
      this.#mayHold = own !== undefined || this.#mayArrive;
      if (seen && own) {
        if (isGranted(seen, own)) {
          const remaining = (own.expires - seen.serverTime) / 1000;
          if (request.minHold > 0) this.#keepUntil = sentAt + Math.min(remaining, request.minHold);
          return this.#grant(own.token, 1, sentAt, remaining);
        }
        await limited.release(this.#name, request.id, 0);
        this.#mayHold = this.#mayArrive;
        // It had a place, and there was no room for it.
        if (request.wait <= 0) return this.#endWithoutClaim();
      }
      if (this.#hasLeft) return this.#endWithoutClaim();
      if (!seen) {
        await leases.createRow(this.#name, leaseLabelOf(request.key));
        continue;
      }
      if (admits(seen.holds, request.limited)) {
        const answer = await this.#claim(seen, lost > 0);
        if (answer) return answer;
        lost += 1;
        // Another claim was faster, and the next look shows for how long it holds; or a place is reserved, and it shows whether there is room.
        if (this.#mayHold || request.wait > 0 || lost < MOST_LOST) continue;
      }
      if (request.wait <= 0) return this.#endWithoutClaim();
      this.#askedAt = undefined;
      const isFirst = !this.#isWaiting;
      this.#isWaiting = true;
      if (isFirst) request.waits();
      const firstEnd = Math.min(...seen.holds.map(({ expires }) => expires - seen.serverTime)) / 1000;
      const lastLook = waitUntil - LAST_LOOK - clock.now();
      const delay = Math.min(backOff(random, round, PAUSE), firstEnd, lastLook > 0 ? lastLook : Infinity);
      await pause(clock, Math.max(1, delay), request.signal);
      if (this.#hasEnded()) return this.#endWithoutClaim();
      round += 1;
    }
  }

  /**
   * Undefined if another claim was faster, or a place is reserved. A caller with a slow connection could lose each race against a fast one
   * that comes and goes, so after the first it reserves a place.
   */
  async #claim(seen: Lease, hasLost: boolean): Promise<Grant | 'busy' | undefined> {
    const { request } = this;
    const { clock } = this.context;
    const { leases, limited } = this.database;
    const { id: holder } = request;
    const sentAt = clock.now();
    const name = this.#name;
    const duration = Math.max(request.lease, request.minHold);
    const callers = request.minHold > 0 ? 1 : request.callers;
    const [openClaim, openUntil] = [this.#openClaim, this.#openUntil];
    this.#mayHold = true;
    let claim: Promise<bigint | boolean | undefined>;
    if (request.limited && hasLost) {
      this.#openUntil = seen.serverTime + toMicroseconds(RESERVE_WITHIN);
      claim = limited.reserve({ name, seen, holder, limited: request.limited }, duration, this.#openUntil);
    } else {
      this.#openClaim = seen.version;
      claim = request.limited
        ? limited.claim({ name, seen, holder, limited: request.limited }, duration)
        : leases.claim(name, seen, holder, duration, callers);
    }
    const token = await claim.catch((error: unknown) => {
      if (['busy', 'rolled-back'].includes(failureOf(error))) return undefined;
      throw error;
    });
    // The release that was sent meanwhile makes the claim void, or frees what it was granted.
    if (this.#isReleased) return 'busy';
    // An earlier one that was not answered may still arrive.
    this.#openClaim = openClaim;
    this.#openUntil = openUntil;
    if (typeof token !== 'bigint') {
      this.#mayHold = token === true || this.#mayArrive;
      return undefined;
    }
    this.#openClaim = undefined;
    if (request.minHold > 0) this.#keepUntil = clock.now() + request.minHold;
    return this.#grant(token, callers, sentAt, request.lease);
  }

  /** @param version the last of the tokens of as many callers */
  #grant(version: bigint, callers: number, sentAt: number, remaining: number): Grant {
    const { mode, lease } = this.request;
    this.#version = version;
    return {
      lease,
      fencingToken: firstToken(mode, version, callers),
      followers: callers - 1,
      validUntil: validUntil(sentAt, Math.min(lease, remaining)),
    };
  }

  /** @throws Error when a claim of an earlier call may still be granted: that is not busy, and the core releases it then */
  #endWithoutClaim(): 'busy' {
    if (!this.#mayHold || this.#isReleased) return 'busy';
    throw new Error('A statement was not answered, and may still take the lock.');
  }

  /** A statement of it may still arrive at the server. */
  get #mayArrive(): boolean {
    return this.#openClaim !== undefined || this.#openUntil > 0;
  }

  // A method, because the answer changes while something is awaited.
  #hasEnded(): boolean {
    return this.#isReleased || this.#hasLeft;
  }
}
