import type {
  AcquireRequest,
  Grant,
  Holder,
  LockCapabilities,
  ProviderContext,
  ReleaseManner,
  ReleaseOutcome,
  RenewOutcome,
} from '../../../lib/api/lock-provider.js';
import { copyOf, DistantMemoryProvider } from '../memory-backend.js';
import { changed, type Acquired } from './changed.js';

// Faults towards a backend that is out of reach, in names, and in what is left behind. See ../kit-catches.spec.ts.

export class UnavailableIsBusy extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    try {
      const answer = super.acquire(request);
      return answer instanceof Promise ? answer.catch(() => 'busy' as const) : answer;
    } catch {
      return 'busy';
    }
  }
}

export class UnansweredIsLost extends DistantMemoryProvider {
  override async renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    const outcome = await super.renew(grant, lease);
    return outcome === 'unknown' ? 'lost' : outcome;
  }
}

export class NeverRecovers extends DistantMemoryProvider {
  override restore(): void {
    this.cutOff();
  }
}

export class SendsAsksAgainAfterAnOutage extends DistantMemoryProvider {
  readonly #unsent: AcquireRequest[] = [];

  override acquire(request: AcquireRequest): Acquired {
    const { signal } = new AbortController();
    if (!this.isConnected) this.#unsent.push({ ...copyOf(request), wait: 0, signal });
    return super.acquire(request);
  }

  override restore(): void {
    super.restore();
    this.context?.clock.setTimer(() => {
      for (const request of this.#unsent.splice(0)) super.acquire(request);
    }, 20);
  }
}

export class TimersInTheConstructor extends DistantMemoryProvider {
  static readonly #timers = new Set<NodeJS.Timeout>();

  constructor(...terms: ConstructorParameters<typeof DistantMemoryProvider>) {
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

export class TimerThatStays extends DistantMemoryProvider {
  override start(context: ProviderContext): Promise<void> {
    const tick = () => {
      context.clock.setTimer(tick, 1_000);
    };
    tick();
    return super.start(context);
  }
}

export class KeepsARecordOfEachLock extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    const { signal } = request;
    super.acquire({ ...copyOf(request), key: `seen:${request.holder}`, lease: 86_400_000, signal });
    return super.acquire(request);
  }
}

export class NoNamespace extends DistantMemoryProvider {
  override start(context: ProviderContext): Promise<void> {
    return super.start({ ...context, namespace: 'lock' });
  }
}

export function renamed(rename: (key: string) => string) {
  return class extends DistantMemoryProvider {
    override acquire(request: AcquireRequest): Acquired {
      const { signal } = request;
      const { key } = request;
      return changed(super.acquire({ ...copyOf(request), key: rename(key), signal }), (grant) => ({ ...grant, key }));
    }
    override renew(grant: Grant, lease: number): Promise<RenewOutcome> {
      return super.renew({ ...grant, key: rename(grant.key) }, lease);
    }
    override release(holder: Holder, manner: ReleaseManner): ReleaseOutcome {
      return super.release({ ...holder, key: rename(holder.key) }, manner);
    }
  };
}

export function withCapabilities(changes: Partial<LockCapabilities>) {
  return class extends DistantMemoryProvider {
    override readonly capabilities = { ...new DistantMemoryProvider(this.table).capabilities, ...changes };
  };
}
