import type { AcquireRequest } from '../../../api/lock-provider.js';
import { firstToken } from '../../../core/toolkit/fencing-token.js';
import type { Lease } from './lease.js';
import { type FoundLease, type GrantedLease, type LeaseClaim, remainingOf, unlessUndone } from './lease-claim.js';
import type { LeaseTable } from './lease-table.js';

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
