import { DenseSet } from '../toolkit/dense-set.js';
import type { ProviderCore } from '../provider-core.js';
import type { CoreMemberRequest } from './member-request.js';

/**
 * The locks that composite providers hold on this provider. A composite provider queues its callers and renews its
 * locks itself, so its requests bypass this provider's queues and watchdog and go directly to the backend.
 */
export class MemberRequests {
  readonly #held = new DenseSet<CoreMemberRequest>();
  /** A lower bound on when the first lease expires. Renewals and releases don't update it. */
  #firstEnd = Infinity;

  constructor(readonly core: ProviderCore) {}

  add(request: CoreMemberRequest): void {
    this.#held.add(request);
    this.endsAt(request.validUntil);
  }

  /** Records that a lease expires at this time. */
  endsAt(time: number): void {
    if (time < this.#firstEnd) this.#firstEnd = time;
  }

  delete(request: CoreMemberRequest): void {
    this.#held.delete(request);
  }

  /** Releases expired leases before another caller in this process requests their keys. */
  expire(): void {
    const now = this.core.clock.now();
    if (now < this.#firstEnd) return;
    this.#firstEnd = Infinity;
    for (const request of this.#held.values()) request.expire(now);
    for (const request of this.#held.values()) this.endsAt(request.validUntil);
  }
}
