import type { AcquireRequest, Holder, ReleaseManner, ReleaseOutcome } from '../../../lib/api/lock-provider.js';
import type { LockInfo } from '../../../lib/api/lock-info.js';
import { copyOf, DistantMemoryProvider } from '../memory-backend.js';
import { changed, type Acquired } from './changed.js';

// Faults in who holds what, and in what is told of it. See ../kit-catches.spec.ts.

export class FreesAnybody extends DistantMemoryProvider {
  override release(holder: Holder, manner: ReleaseManner): ReleaseOutcome {
    const outcome = super.release(holder, manner);
    if (outcome === 'lost') this.table.free(`${this.context?.namespace ?? ''}:${holder.key}`);
    return outcome;
  }
}

export class AlwaysReleased extends DistantMemoryProvider {
  override release(holder: Holder, manner: ReleaseManner): ReleaseOutcome {
    super.release(holder, manner);
    return 'released';
  }
}

export class ForgetsToRelease extends DistantMemoryProvider {
  override release(): ReleaseOutcome {
    return 'released';
  }
}

export class AdmitsEverybody extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    const { signal } = request;
    return super.acquire({ ...copyOf(request), mode: 'shared', signal }) === 'busy'
      ? 'busy'
      : changed(super.acquire({ ...copyOf(request), mode: 'shared', signal }), (grant) => ({
          ...grant,
          mode: request.mode,
        }));
  }
}

export class ReadersExcludeEachOther extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    const { signal, mode } = request;
    return changed(super.acquire({ ...copyOf(request), mode: 'exclusive', signal }), (grant) => ({ ...grant, mode }));
  }
}

export class RestartsTokens extends DistantMemoryProvider {
  #token = 0n;
  override acquire(request: AcquireRequest): Acquired {
    return changed(super.acquire(request), (grant) => ({ ...grant, fencingToken: (this.#token += 1n) }));
  }
}

export class SameIdTwice extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    const name = `${this.context?.namespace ?? ''}:${request.key}`;
    const isOwn = this.table.look(name)?.holds.some(({ holder }) => holder === request.holder);
    return isOwn ? 'busy' : super.acquire(request);
  }
}

export class FreesParkedKeys extends DistantMemoryProvider {
  override release(holder: Holder): ReleaseOutcome {
    return super.release(holder, { keepFor: 0, failed: false });
  }
}

export class ForgetsMinHoldInACrash extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    return super.acquire({ ...copyOf(request), minHold: 0, signal: request.signal });
  }
}

export class ForceReleasesNothing extends DistantMemoryProvider {
  override forceRelease(): Promise<boolean> {
    return Promise.resolve(true);
  }
}

export class ShowsHolders extends DistantMemoryProvider {
  override async inspect(key: string): Promise<LockInfo | null> {
    const info = await super.inspect(key);
    const [hold] = this.table.look(`${this.context?.namespace ?? ''}:${key}`)?.holds ?? [];
    return info && hold ? { ...info, key: `${key} of ${hold.holder}` } : info;
  }
}

export class TellsHolders extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    this.context?.logger.debug(`SET ${request.key} ${request.holder}`);
    return super.acquire(request);
  }
}
