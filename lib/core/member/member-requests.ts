import { DenseSet } from '../toolkit/dense-set.js';
import type { ProviderCore } from '../provider-core.js';
import type { CoreMemberRequest } from './member-request.js';

/**
 * The locks that composite providers hold on this provider. A composite queues its callers and renews its locks itself, so its requests go
 * directly to the backend, and not through the queues and the watchdog of this provider.
 */
export class MemberRequests {
  readonly #held = new DenseSet<CoreMemberRequest>();
  /** No lease ends before this time. It may be too early, because a renewal or a release does not move it. */
  #firstEnd = Infinity;

  constructor(readonly core: ProviderCore) {}

  add(request: CoreMemberRequest): void {
    this.#held.add(request);
    this.endsAt(request.validUntil);
  }

  /** Notes that a lease ends at this time. */
  endsAt(time: number): void {
    if (time < this.#firstEnd) this.#firstEnd = time;
  }

  delete(request: CoreMemberRequest): void {
    this.#held.delete(request);
  }

  /** Releases the expired leases, before another caller of this process requests their keys. */
  expire(): void {
    const now = this.core.clock.now();
    if (now < this.#firstEnd) return;
    this.#firstEnd = Infinity;
    for (const request of this.#held.values()) request.expire(now);
    for (const request of this.#held.values()) this.endsAt(request.validUntil);
  }
}
