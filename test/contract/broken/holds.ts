import type { AcquireRequest, ReleaseOptions, ReleaseOutcome } from '../../../lib/api/lock-provider.js';
import type { LockInfo } from '../../../lib/api/lock-info.js';
import { copyOf, DistantBackend } from '../memory-server.js';
import { changed, type Acquired } from './changed.js';

// Faults in who holds what, and in what is told of it. See ../kit-catches.spec.ts.

export class FreesAnybody extends DistantBackend {
  override async release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    const outcome = await super.release(request, options);
    if (outcome === 'lost') this.memory.free(`${this.surrounding.namespace}:${request.key}`);
    return outcome;
  }
}

export class AlwaysReleased extends DistantBackend {
  override async release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    await super.release(request, options);
    return 'released';
  }
}

export class ForgetsToRelease extends DistantBackend {
  override release(): Promise<ReleaseOutcome> {
    return Promise.resolve('released');
  }
}

/** An acquire that follows overtakes it. */
export class ReleasesLater extends DistantBackend {
  override async release(...args: Parameters<DistantBackend['release']>): Promise<ReleaseOutcome> {
    await Promise.resolve();
    return super.release(...args);
  }
}

export class AdmitsEverybody extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    const { signal } = request;
    return super.acquire({ ...copyOf(request), mode: 'shared', signal });
  }
}

export class ReadersExcludeEachOther extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    const { signal } = request;
    return super.acquire({ ...copyOf(request), mode: 'exclusive', signal });
  }
}

export class RestartsTokens extends DistantBackend {
  #token = 0n;
  override acquire(request: AcquireRequest): Acquired {
    return changed(super.acquire(request), (grant) => ({ ...grant, fencingToken: (this.#token += 1n) }));
  }
}

export class SameIdTwice extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    const name = `${this.surrounding.namespace}:${request.key}`;
    const isOwn = this.memory.report(name)?.holds.some(({ holder }) => holder === request.id);
    return isOwn ? Promise.resolve('busy') : super.acquire(request);
  }
}

export class FreesParkedKeys extends DistantBackend {
  override release(request: AcquireRequest): Promise<ReleaseOutcome> {
    return super.release(request, { keepFor: 0, failed: false });
  }
}

export class ForgetsMinHoldInACrash extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    return super.acquire({ ...copyOf(request), minHold: 0, signal: request.signal });
  }
}

export class ForceReleasesNothing extends DistantBackend {
  override forceRelease(): Promise<boolean> {
    return Promise.resolve(true);
  }
}

export class ShowsHolders extends DistantBackend {
  override async inspect(key: string): Promise<LockInfo | null> {
    const info = await super.inspect(key);
    const [hold] = this.memory.report(`${this.surrounding.namespace}:${key}`)?.holds ?? [];
    return info && hold ? { ...info, key: `${key} of ${hold.holder}` } : info;
  }
}

export class TellsHolders extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    this.surrounding.logger.debug(`SET ${request.key} ${request.id}`);
    return super.acquire(request);
  }
}
