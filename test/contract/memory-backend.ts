import type {
  AcquireRequest,
  Answer,
  Grant,
  Holder,
  LockCapabilities,
  LockProvider,
  ProviderContext,
  ReleaseManner,
  ReleaseOutcome,
  RenewOutcome,
} from '../../lib/api/lock-provider.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import type { LockTable } from '../../lib/providers/memory/lock-table.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import type { ProviderHarness } from '../../lib/testing/index.js';

/** A lock table as if it stood behind a network, for all that the kit does to a backend. */
export class MemoryBackend {
  constructor(
    readonly table: LockTable,
    private readonly queue: LockCapabilities['queue'] = 'native',
  ) {}

  create(): DistantMemoryProvider {
    return new DistantMemoryProvider(this.table, this.queue);
  }

  harness(): ProviderHarness {
    return {
      capabilities: this.create().capabilities,
      create: () => this.create(),
      faults: {
        revoke: (namespace, key) => Promise.resolve(void this.table.free(`${namespace}:${key}`)),
        cutOff: (provider) => Promise.resolve(distant(provider).cutOff()),
        restore: (provider) => Promise.resolve(distant(provider).restore()),
      },
      leftovers: () => Promise.resolve(this.table.size),
    };
  }
}

function distant(provider: LockProvider): DistantMemoryProvider {
  if (provider instanceof DistantMemoryProvider) return provider;
  throw new Error('A provider of another backend');
}

/** The memory provider with a cable that can be pulled. */
export class DistantMemoryProvider extends MemoryLockProvider {
  override readonly capabilities: LockCapabilities;
  #cable: AbortController | undefined = new AbortController();
  protected context: ProviderContext | undefined;

  constructor(
    readonly table: LockTable,
    queue: LockCapabilities['queue'] = 'native',
  ) {
    super({ table });
    // Behind the engine's queue the order among processes is that of their first waiters only.
    this.capabilities = { ...new MemoryLockProvider().capabilities, queue, fair: queue === 'native' };
  }

  get isConnected(): boolean {
    return this.#cable !== undefined;
  }

  cutOff(): void {
    this.#cable?.abort();
    this.#cable = undefined;
    this.context?.emit({ type: 'unavailable', cause: unreachable() });
  }

  restore(): void {
    this.#cable = new AbortController();
    this.context?.emit({ type: 'recovered' });
  }

  override async start(context: ProviderContext): Promise<void> {
    this.context = context;
    await super.start(context);
    if (!this.#cable) throw unreachable();
  }

  override acquire(request: AcquireRequest): Answer<Grant | 'busy'> {
    const cable = this.#cable?.signal;
    if (!cable) throw unreachable();
    if (request.wait <= 0) return super.acquire(request);
    const signal = AbortSignal.any([cable, request.signal]);
    return Promise.resolve(super.acquire({ ...copyOf(request), signal })).then((answer) => {
      if (answer === 'busy' && cable.aborted) throw unreachable();
      return answer;
    });
  }

  override renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    return this.#cable ? super.renew(grant, lease) : Promise.resolve('unknown');
  }

  override release(holder: Holder, manner: ReleaseManner): ReleaseOutcome {
    return this.#cable ? super.release(holder, manner) : 'unknown';
  }
}

// The engine's request has its fields on its prototype.
export function copyOf({ key, holder, mode, lease, renew, minHold, wait, options }: AcquireRequest) {
  return { key, holder, mode, lease, renew, minHold, wait, options };
}

function unreachable(): LockUnavailableError {
  return new LockUnavailableError('The memory is out of reach.');
}
