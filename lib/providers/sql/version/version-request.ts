import type {
  AcquireRequest,
  BackendContext,
  Grant,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../../api/lock-provider.js';
import { withAbort } from '../../../core/toolkit/abort-listeners.js';
import type { SeenHolders } from '../../shared/seen-holders.js';
import { backOff, pause } from '../../../core/toolkit/timing.js';
import { validUntil } from '../../../core/toolkit/validity.js';
import { leaseLabelOf, leaseNameOf } from '../table/lock-name.js';
import type { Database } from '../database.js';
import type { SqlRequest } from '../sql-backend.js';
import { holderIn, type Lease } from './lease.js';
import { type FoundLease, type GrantedLease, LeaseClaim, remainingOf } from './lease-claim.js';
import type { LeaseTable } from './lease-table.js';
import type { LimitedLeases } from './limited-leases.js';

// How long before a busy row is looked at again. One look is one indexed read.
const PAUSE = { first: 10, most: 200 };
// How long before the end of the wait the last look is made, in ms.
const LAST_LOOK = 50;
// How many claims of others may be faster than those of an attempt that does not wait.
const MOST_LOST = 5;

/** The database of the leases, connected. */
export interface LeaseDatabase extends Database {
  readonly leases: LeaseTable;
  readonly limited: LimitedLeases;
}

/** A row as it was read. */
interface Look {
  readonly seen: Lease | undefined;
  /** When the look was sent, on the monotonic clock. */
  readonly lookedAt: number;
}

/** One attempt to hold one lease, from its first look to its release: when it looks, waits and ends. Its statements are those of its claim. */
export class VersionRequest implements SqlRequest {
  #released = false;
  /** Its caller has left. `request.wait` does not show it: that has run down to 0 by then, as for an attempt that never waits. */
  #hasLeft = false;
  /** Since when it looks or claims without an answer, on the monotonic clock. */
  #askedAt: number | undefined;
  /** Until when `minHold` lasts, on the monotonic clock. */
  #keepUntil = -Infinity;
  /** The answer to its last ask. */
  #answer: Promise<Grant | 'busy' | 'not-asked'> | undefined;
  /** Called when it begins to wait. */
  #onWait: (() => void) | undefined;
  readonly #name: string;
  readonly #claim: LeaseClaim;

  constructor(
    private readonly context: BackendContext,
    private readonly database: LeaseDatabase,
    private readonly request: AcquireRequest,
    private readonly holders: SeenHolders,
  ) {
    const { leases, limited } = database;
    this.#name = leaseNameOf(context.namespace, request.key);
    this.#claim = new LeaseClaim(context.clock, leases, limited, this.#name, request);
  }

  get unansweredFor(): number {
    return this.#askedAt === undefined ? 0 : this.context.clock.now() - this.#askedAt;
  }

  async renew(lease: number): Promise<RenewOutcome> {
    const sentAt = this.context.clock.now();
    // A crash must not cut `minHold` short.
    const isRenewed = await this.#claim.renew(Math.max(lease, this.#keepUntil - sentAt));
    return isRenewed ? { validUntil: validUntil(sentAt, lease) } : 'lost';
  }

  /** Asks, again and again while `request.wait` lasts. A repeated call finds the hold that an unanswered one has left. */
  acquire(): Promise<Grant | 'busy' | 'not-asked'> {
    const { after } = this.request;
    this.#answer =
      after === undefined ? this.#claimWhenFree() : this.#askBehind(after.state as VersionRequest | undefined);
    return this.#answer;
  }

  /**
   * Looks now, in one statement with the other requests of its chain, and claims when the one before it is granted. Claims in one statement could
   * wait for each other's rows.
   */
  async #askBehind(before: VersionRequest | undefined): Promise<Grant | 'busy' | 'not-asked'> {
    const lookedAt = this.context.clock.now();
    const early = this.database.leases.read(this.#name).then(
      (seen) => ({ seen, lookedAt }),
      // A look that has failed is made again.
      () => undefined,
    );
    const isAsked = (await before?.isGranted()) === true && !this.#isReleased();
    return isAsked ? this.#claimWhenFree(await early) : 'not-asked';
  }

  /** Resolves to whether its ask is granted without a wait. For the one request that is behind it. */
  isGranted(): Promise<boolean> {
    const waits = new Promise<boolean>((resolve) => {
      this.#onWait = () => {
        resolve(false);
      };
    });
    const isGrant = (answer: Grant | string) => typeof answer === 'object';
    return Promise.race([waits, this.#answer?.then(isGrant, () => false) ?? waits]);
  }

  /**
   * Ends it, in whatever state it is. Without a claim there is nothing to release: in an outage each caller would leave a statement that is
   * repeated for a whole lease.
   */
  async release({ keepFor }: ReleaseOptions): Promise<ReleaseOutcome> {
    this.#released = true;
    if (!this.#claim.sent) return 'lost';
    return (await this.#claim.release(keepFor)) ? 'released' : 'lost';
  }

  /** @param early a look that was made before its turn */
  async #claimWhenFree(early?: Look): Promise<Grant | 'busy'> {
    const answer = await this.#claimIfFree(early);
    if (typeof answer !== 'number') return answer;
    if (this.request.wait <= 0) return this.#endWithoutClaim();
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#hasLeft = true;
        // The row was busy when it was seen last. But a claim that is in flight may be granted, so its answer decides.
        if (!this.#claim.sent) resolve('busy');
      };
      // Not before it waits: the signal is made when it is read. A first look is ended by the release of its caller, and what a caller without one was
      // granted is given back.
      withAbort(this.request.signal, leave, () => this.#wait(answer)).then(resolve, reject);
    });
  }

  /** @param endsIn in how many ms the first of those ends that hold the lease */
  async #wait(endsIn: number): Promise<Grant | 'busy'> {
    const { request } = this;
    const { clock, random } = this.context;
    const waitUntil = clock.now() + request.wait;
    for (let round = 0, left = endsIn; ; round += 1) {
      this.#askedAt = undefined;
      this.#onWait?.();
      if (round === 0) request.waits();
      const lastLook = waitUntil - LAST_LOOK - clock.now();
      const delay = Math.min(backOff(random, round, PAUSE), left, lastLook > 0 ? lastLook : Infinity);
      await pause(clock, Math.max(1, delay), request.signal);
      if (this.#hasEnded()) return this.#endWithoutClaim();
      const answer = await this.#claimIfFree();
      if (typeof answer !== 'number') return answer;
      if (request.wait <= 0) return this.#endWithoutClaim();
      left = answer;
    }
  }

  /** Looks, and claims what is free. Resolves to a number where others hold the lease: in how many ms the first of them ends. */
  async #claimIfFree(early?: Look): Promise<Grant | 'busy' | number> {
    const { request } = this;
    const { clock } = this.context;
    const { leases } = this.database;
    const claim = this.#claim;
    for (let lost = 0, look = early; ; look = undefined) {
      this.#askedAt = clock.now();
      const lookedAt = look?.lookedAt ?? this.#askedAt;
      const seen = look ? look.seen : await leases.read(this.#name);
      if (this.#isReleased()) break;
      const found = await claim.look(seen);
      if (found) {
        const confirmed = await this.#confirm(found, lookedAt);
        if (confirmed) return confirmed;
        // The release that was sent meanwhile has freed it, or it had ended: that shows the next look.
        continue;
      }
      if (this.#hasEnded()) break;
      if (!seen) {
        await leases.createRow(this.#name, leaseLabelOf(request.key));
        continue;
      }
      if (!claim.fits(seen)) {
        // Since that look the row may have become free.
        if (look) continue;
        this.holders.saw(request, holderIn(seen), lookedAt);
        return Math.min(...seen.holds.map((hold) => remainingOf(seen, hold)));
      }
      const claimedAt = clock.now();
      const granted = await claim.claim(seen);
      // The release that was sent meanwhile makes the claim void, or frees what it was granted.
      if (this.#isReleased()) break;
      if (granted) return this.#grant(granted, claimedAt);
      lost += 1;
      // Otherwise the next look shows for how long the faster claim holds, or whether a reserved place has room.
      if (request.wait <= 0 && lost >= MOST_LOST && !claim.sent) break;
    }
    return this.#endWithoutClaim();
  }

  /** Grants what was found, once a write shows that it survives a failover. Resolves to nothing if it had ended before. */
  async #confirm(found: FoundLease, lookedAt: number): Promise<Grant | undefined> {
    if (found.isAcknowledged) return this.#grant(found, lookedAt);
    const { lease, minHold } = this.request;
    const remaining = Math.max(lease, minHold);
    const sentAt = this.context.clock.now();
    const isRenewed = await this.#claim.renew(remaining);
    return isRenewed ? this.#grant({ ...found, remaining }, sentAt) : undefined;
  }

  #grant({ fencingToken, followers, remaining }: GrantedLease, sentAt: number): Grant {
    const { lease, minHold } = this.request;
    if (minHold > 0) this.#keepUntil = this.context.clock.now() + Math.min(remaining, minHold);
    return { lease, fencingToken, followers, validUntil: validUntil(sentAt, Math.min(lease, remaining)) };
  }

  /** @throws Error when a claim of an earlier call may still be granted: that is not busy, and the core releases it then */
  #endWithoutClaim(): 'busy' {
    if (!this.#claim.sent || this.#released) return 'busy';
    throw new Error('A statement was not answered, and may still take the lock.');
  }

  // Methods, because the answers change while something is awaited.
  #isReleased(): boolean {
    return this.#released;
  }

  #hasEnded(): boolean {
    return this.#released || this.#hasLeft;
  }
}
