import { validUntil } from '../../../lib/core/toolkit/validity.js';
import { type AcquireRequest, type RenewOutcome } from '../../../lib/api/lock-provider.js';
import type { MemoryStore } from '../../../lib/providers/memory/memory-store.js';
import { copyOf, DistantBackend } from '../memory-server.js';
import { changed, type Acquired } from './changed.js';

// Faults in how long a hold lasts. See ../kit-catches.spec.ts.

export class ReacquiresOnRenewal extends DistantBackend {
  override async renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
    const { signal } = new AbortController();
    await super.acquire({ ...copyOf(request), lease, wait: 0, signal });
    return super.renew(request, lease);
  }
}

export class OneOutcomeForAllRenewals extends DistantBackend {
  #first: Promise<RenewOutcome> | undefined;

  override renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
    const outcome = super.renew(request, lease);
    this.#first ??= outcome.finally(() => (this.#first = undefined));
    return this.#first;
  }
}

export class NeverRenews extends DistantBackend {
  override renew(_: AcquireRequest, lease: number): Promise<RenewOutcome> {
    return Promise.resolve({ validUntil: validUntil(this.surrounding.clock.now(), lease) });
  }
}

export class ProlongsWhenAskedAgain extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    this.memory.renew(`${this.surrounding.namespace}:${request.key}`, request.id, request.lease);
    return super.acquire(request);
  }
}

export class FailedAttemptsProlong extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    const name = `${this.surrounding.namespace}:${request.key}`;
    const [owner] = this.memory.report(name)?.holds ?? [];
    if (owner) this.memory.renew(name, owner.holder, request.lease);
    return super.acquire(request);
  }
}

export class BelievesTooLong extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    return changed(super.acquire(request), (grant) => ({ ...grant, validUntil: grant.validUntil + 500 }));
  }
}

export class GrantsWhatIsOver extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    return changed(super.acquire(request), (grant) => ({ ...grant, validUntil: grant.validUntil - grant.lease }));
  }
}

/** Writes when a lease ends by its own wall clock, and compares that with the wall clock of another machine. */
export class ComparesWallClocks extends DistantBackend {
  static readonly #ends = new WeakMap<MemoryStore, Map<string, number>>();

  protected wallTime(): number {
    return this.surrounding.clock.wallTime();
  }

  override async acquire(request: AcquireRequest): Acquired {
    const name = `${this.surrounding.namespace}:${request.key}`;
    const ends = ComparesWallClocks.#ends.get(this.memory) ?? new Map<string, number>();
    ComparesWallClocks.#ends.set(this.memory, ends);
    if ((ends.get(name) ?? Infinity) < this.wallTime()) this.memory.free(name);
    return changed(super.acquire(request), (grant) => {
      ends.set(name, this.wallTime() + request.lease);
      return grant;
    });
  }
}

/** The same without the clock that it was given. */
export class ComparesDates extends ComparesWallClocks {
  protected override wallTime(): number {
    return Date.now();
  }
}

export class OneLeaseForAll extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    return super.acquire({ ...copyOf(request), lease: 30_000, signal: request.signal });
  }
}

export class LongLeasesForWaiters extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    const lease = request.wait > 0 ? 30_000 : request.lease;
    return super.acquire({ ...copyOf(request), lease, signal: request.signal });
  }
}

export class OverlooksTheEndOfLeases extends DistantBackend {
  constructor(...[context, store, ...rest]: ConstructorParameters<typeof DistantBackend>) {
    const { clock } = context;
    store.use({
      now: () => clock.now(),
      uptime: () => clock.uptime(),
      wallTime: () => clock.wallTime(),
      setTimer: () => ({}),
      clearTimer: () => undefined,
    });
    super(context, store, ...rest);
  }
}
