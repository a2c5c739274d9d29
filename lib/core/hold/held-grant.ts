import type { Clock } from '../../api/clock.js';
import type { LossReason } from '../../api/errors.js';
import type { AcquireRequest, Grant, ReleaseOutcome } from '../../api/lock-provider.js';
import type { Placed } from '../toolkit/dense-set.js';
import type { SuspensionDetector } from '../toolkit/suspension.js';
import { LeaseValidity } from '../toolkit/validity.js';
import type { ReleaseIntent } from './releases.js';

/** Holds by a grant: a caller's hold, or what a provider that is built on this one was granted. */
export interface GrantHolder {
  /** When it ends, whatever the lease; `Infinity` unless it has a `maxHold`. On the monotonic clock. */
  readonly endsAt: number;
  /** The grant is lost, and with it what this holder has. */
  lose(reason: LossReason, cause?: unknown): void;
}

/** What decides whether the next caller goes on under a grant that is not used any more, or the backend gets it back. */
export interface GrantOwner {
  /** The last holder has released it. */
  released(grant: HeldGrant, intent: ReleaseIntent): Promise<ReleaseOutcome>;
  /** It is lost. */
  lost(grant: HeldGrant): void;
}

/**
 * What the backend has granted to this process: one holder at a time has it, or readers together.
 *
 * It owns all that outlives a holder: until when the lock is surely ours, the numbers of its renewals, and how many suspensions of the
 * machine were known at the last acknowledged command. So an answer to a renewal concerns those who hold by the grant when it comes.
 */
export class HeldGrant implements Placed {
  /** Among what callers hold. */
  place = -1;
  /** The id under which the backend has it. */
  readonly id: string;
  readonly holders = new Set<GrantHolder>();
  /** The length of the lease for the next renewals, in ms. */
  lease: number;
  /** When the watchdog should renew next, on the monotonic clock; `Infinity` for a lease that it does not renew. */
  renewAt: number;
  /** How many callers may still have it after its present holder. */
  followers: number;
  /** The token of the latest holder. */
  token: bigint | null;
  /** A lock was made of it. Before that an attempt may still fail for another key, and then no task has run. */
  isUsed = false;
  readonly #validity: LeaseValidity;
  #handoffs = 0;
  #isOver = false;

  constructor(
    readonly request: AcquireRequest,
    grant: Grant,
    readonly grantedAt: number,
    /** The number of the last caller that had come by then. */
    readonly arrivals: number,
    /** How many suspensions of the machine were known when the last acknowledged command was sent. */
    private knownSuspensions: number,
    /** Whether the watchdog renews it, if it is renewed at all; a provider that is built on this one renews its own. */
    private readonly isWatched: boolean,
    private readonly owner: GrantOwner,
    private readonly clock: Clock,
    private readonly suspension: SuspensionDetector,
  ) {
    this.id = request.id;
    this.lease = grant.lease;
    this.followers = grant.followers ?? 0;
    this.token = grant.fencingToken;
    this.#validity = new LeaseValidity(grant.lease, grant.validUntil);
    this.renewAt = isWatched && request.renew ? this.#nextRenewal() : Infinity;
  }

  get validUntil(): number {
    return this.#validity.until;
  }

  /** Until when the key stays retained after a release (`minHold`), on the monotonic clock; 0 for not at all, as before it is used. */
  get keepUntil(): number {
    const { minHold } = this.request;
    return minHold === 0 || !this.isUsed ? 0 : this.grantedAt + minHold;
  }

  /** For how many ms the backend may keep the lock if no release reaches it. */
  get mayBeKeptFor(): number {
    return this.#validity.longest;
  }

  /** When something is to be done about it: a renewal is due, or it or a holder ends. On the monotonic clock. */
  get nextWake(): number {
    let next = Math.min(this.renewAt, this.#validity.until);
    for (const { endsAt } of this.holders) if (endsAt < next) next = endsAt;
    return next;
  }

  /** Whether it is surely ours, by the clock: it is lost if not. */
  isValid(now = this.clock.now()): boolean {
    if (!this.#isOver && now >= this.#validity.until) this.lose('expired');
    return !this.#isOver;
  }

  /** Whether the machine was not suspended since the last acknowledged command was sent. */
  isVerified(): boolean {
    return this.suspension.observe() === this.knownSuspensions;
  }

  /** As {@link isVerified}, for a handoff at `now`: a look that costs less. */
  isVerifiedAt(now: number): boolean {
    return this.suspension.observeGrant(now) === this.knownSuspensions;
  }

  /** From now on it is renewed to `lease` ms. Beside other holders it is never shortened. */
  changeLease(lease: number): void {
    if (lease === this.lease) return;
    this.followers = 0;
    this.lease = this.holders.size > 1 ? Math.max(lease, this.lease) : lease;
  }

  /** A renewal to its lease is about to be sent. Answers its number, for {@link confirm}. */
  beginRenewal(): number {
    return this.#validity.renewing(this.lease, this.clock.now());
  }

  /** The renewal of this number, sent after `suspensions` suspensions, was acknowledged. */
  confirm(renewal: number, until: number, suspensions: number): void {
    // An acknowledgement that is processed after the deadline does not bring a lost lock back.
    if (!this.isValid() || !this.#validity.acknowledged(renewal, until)) return;
    this.knownSuspensions = suspensions;
    if (this.renewAt !== Infinity) this.renewAt = this.#nextRenewal();
  }

  /** The next caller holds by it, with the next token. */
  handOff(): void {
    this.followers -= 1;
    this.#handoffs += 1;
    if (this.token !== null) this.token += 1n;
  }

  /** Whether its present holder is the first one, which the backend knows by the id of the request. */
  get isFirst(): boolean {
    return this.#handoffs === 0 && this.holders.size === 0;
  }

  /** One of its holders has released it. */
  release(holder: GrantHolder, intent: ReleaseIntent): Promise<ReleaseOutcome> {
    this.holders.delete(holder);
    if (this.holders.size > 0) return Promise.resolve('released');
    return this.owner.released(this, intent);
  }

  /** One of its holders has lost what the others keep. With the last one the backend gets it back. */
  abandon(holder: GrantHolder, intent: ReleaseIntent): void {
    if (this.#isOver) return;
    this.followers = 0;
    void this.release(holder, intent);
  }

  /** Ends it as lost, unless it has ended already. */
  lose(reason: LossReason, cause?: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const holder of this.holders) holder.lose(reason, cause);
    this.owner.lost(this);
  }

  /** It is given back: what is reported of it concerns nobody any more. */
  end(): void {
    this.#isOver = true;
  }

  // A third of the lease: two renewals may fail before the deadline (the cadence of Redisson and DistributedLock).
  // Counted back from the deadline, which was computed from the time when the acknowledged command was sent.
  #nextRenewal(): number {
    return this.#validity.until - (this.lease * 2) / 3;
  }
}
