import { type LockError, LockUnavailableError } from '../../../lib/api/errors.js';
import type {
  AcquireRequest,
  LockCapabilities,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../../lib/api/lock-provider.js';
import { copyOf, DistantBackend } from '../memory-server.js';
import { type Acquired } from './changed.js';

// Faults towards a backend that is out of reach, in names, and in what is left behind. See ../kit-catches.spec.ts.

export class UnavailableIsBusy extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    return super.acquire(request).catch(() => 'busy' as const);
  }
}

export class RefusalIsOutage extends DistantBackend {
  override refusal({ key }: AcquireRequest): LockError {
    return new LockUnavailableError('No permission.', { key });
  }
}

export class UnansweredIsLost extends DistantBackend {
  override async renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
    const outcome = await super.renew(request, lease);
    return outcome === 'unknown' ? 'lost' : outcome;
  }
}

export class NeverRecovers extends DistantBackend {
  override onRestored(): void {
    this.cable.cutOff();
  }
}

export class SendsAsksAgainAfterAnOutage extends DistantBackend {
  readonly #unsent: AcquireRequest[] = [];

  override acquire(request: AcquireRequest): Acquired {
    const { signal } = new AbortController();
    if (!this.isConnected) this.#unsent.push({ ...copyOf(request), wait: 0, signal });
    return super.acquire(request);
  }

  override onRestored(): void {
    super.onRestored();
    this.surrounding.clock.setTimer(() => {
      for (const request of this.#unsent.splice(0)) void super.acquire(request);
    }, 20);
  }
}

export class TimersInTheConstructor extends DistantBackend {
  static readonly #timers = new Set<NodeJS.Timeout>();

  constructor(...terms: ConstructorParameters<typeof DistantBackend>) {
    super(...terms);
    // Several, since the kit counts handles, and a timer of the runner may end meanwhile. Longer than the kit looks whether they end.
    for (let count = 0; count < 5; count += 1) {
      TimersInTheConstructor.#timers.add(setTimeout(() => undefined, 600_000));
    }
  }

  /** Or they would keep the tests alive. */
  static clear(): void {
    for (const timer of TimersInTheConstructor.#timers) clearTimeout(timer);
  }
}

export class TimerThatStays extends DistantBackend {
  override connect(): Promise<void> {
    const tick = () => {
      this.surrounding.clock.setTimer(tick, 1_000);
    };
    tick();
    return super.connect();
  }
}

export class KeepsARecordOfEachLock extends DistantBackend {
  override async acquire(request: AcquireRequest): Acquired {
    const { signal } = request;
    await super.acquire({ ...copyOf(request), key: `seen:${request.id}`, lease: 86_400_000, signal });
    return super.acquire(request);
  }
}

export class NoNamespace extends DistantBackend {
  constructor(...[context, ...rest]: ConstructorParameters<typeof DistantBackend>) {
    super({ ...context, namespace: 'lock' }, ...rest);
  }
}

export function renamed(rename: (key: string) => string) {
  return class extends DistantBackend {
    override acquire(request: AcquireRequest): Acquired {
      const { key, signal } = request;
      return super.acquire({ ...copyOf(request), key: rename(key), signal });
    }
    override renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
      const { key, signal } = request;
      return super.renew({ ...copyOf(request), key: rename(key), signal }, lease);
    }
    override release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
      const { key, signal } = request;
      return super.release({ ...copyOf(request), key: rename(key), signal }, options);
    }
  };
}

export class WithoutFencing extends DistantBackend {
  override readonly capabilities: LockCapabilities;

  constructor(...terms: ConstructorParameters<typeof DistantBackend>) {
    super(...terms);
    const [, , , queue] = terms;
    this.capabilities = {
      ...{ shared: true, fencing: false, lease: 'per-lock', minHold: true, forceRelease: true, queue, fair: true },
    };
  }
}
