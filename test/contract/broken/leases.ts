import { validUntil } from '../../../lib/core/toolkit/validity.js';
import {
  type AcquireRequest,
  type Grant,
  type ProviderContext,
  type RenewOutcome,
} from '../../../lib/api/lock-provider.js';
import { copyOf, DistantMemoryProvider } from '../memory-backend.js';
import { changed, type Acquired } from './changed.js';

// Faults in how long a hold lasts. See ../kit-catches.spec.ts.

export class ReacquiresOnRenewal extends DistantMemoryProvider {
  override async renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    const { signal } = new AbortController();
    super.acquire({ ...grant, lease, renew: true, minHold: 0, wait: 0, options: {}, signal });
    return super.renew(grant, lease);
  }
}

export class OneOutcomeForAllRenewals extends DistantMemoryProvider {
  #first: Promise<RenewOutcome> | undefined;

  override renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    const outcome = super.renew(grant, lease);
    this.#first ??= outcome.finally(() => (this.#first = undefined));
    return this.#first;
  }
}

export class NeverRenews extends DistantMemoryProvider {
  override renew(_: Grant, lease: number): Promise<RenewOutcome> {
    return Promise.resolve({ validUntil: validUntil(this.context?.clock.now() ?? 0, lease) });
  }
}

export class ProlongsWhenAskedAgain extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    this.table.prolong(`${this.context?.namespace ?? ''}:${request.key}`, request.holder, request.lease);
    return super.acquire(request);
  }
}

export class FailedAttemptsProlong extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    const name = `${this.context?.namespace ?? ''}:${request.key}`;
    const [owner] = this.table.look(name)?.holds ?? [];
    if (owner) this.table.prolong(name, owner.holder, request.lease);
    return super.acquire(request);
  }
}

export class BelievesTooLong extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    return changed(super.acquire(request), (grant) => ({ ...grant, validUntil: grant.validUntil + 500 }));
  }
}

export class GrantsWhatIsOver extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    return changed(super.acquire(request), (grant) => ({ ...grant, validUntil: grant.validUntil - grant.lease }));
  }
}

export class OneLeaseForAll extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    return super.acquire({ ...copyOf(request), lease: 30_000, signal: request.signal });
  }
}

export class LongLeasesForWaiters extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    const lease = request.wait > 0 ? 30_000 : request.lease;
    return super.acquire({ ...copyOf(request), lease, signal: request.signal });
  }
}

export class OverlooksTheEndOfLeases extends DistantMemoryProvider {
  override start(context: ProviderContext): Promise<void> {
    const { clock } = context;
    this.table.use({
      now: () => clock.now(),
      uptime: () => clock.uptime(),
      wallTime: () => clock.wallTime(),
      setTimer: () => ({}),
      clearTimer: () => undefined,
    });
    return super.start(context);
  }
}
