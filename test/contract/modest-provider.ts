import type {
  AcquireRequest,
  Grant,
  Holder,
  LockCapabilities,
  LockProvider,
  ProviderContext,
  ReleaseManner,
  ReleaseOutcome,
  RenewOutcome,
} from '../../lib/api/lock-provider.js';
import type { LockTable } from '../../lib/providers/memory/lock-table.js';
import type { ProviderHarness } from '../../lib/testing/index.js';
import { copyOf, DistantMemoryProvider, MemoryBackend } from './memory-backend.js';

const SESSION = 600;

/**
 * Can as little as a provider may: locks that live with its session and nothing else, so that the kit's questions for
 * what is not claimed are asked too.
 */
export class ModestProvider implements LockProvider {
  readonly capabilities: LockCapabilities = {
    shared: false,
    fair: false,
    fencing: false,
    lease: 'session',
    minHold: false,
    forceRelease: false,
    queue: 'engine',
  };
  readonly memory: DistantMemoryProvider;
  readonly #held = new Map<string, Grant>();

  constructor(table: LockTable) {
    this.memory = new DistantMemoryProvider(table);
  }

  start(context: ProviderContext): Promise<void> {
    return this.memory.start(context);
  }

  async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { signal } = request;
    const answer = await this.memory.acquire({ ...copyOf(request), lease: SESSION, signal });
    if (answer === 'busy') return 'busy';
    const grant = { ...answer, fencingToken: null };
    this.#held.set(grant.holder, grant);
    return grant;
  }

  renew(grant: Grant): Promise<RenewOutcome> {
    return this.memory.renew(grant, SESSION);
  }

  release(holder: Holder, manner: ReleaseManner): ReleaseOutcome {
    this.#held.delete(holder.holder);
    return this.memory.release(holder, manner);
  }

  /** Its session ends, and with it all that it holds. */
  stop(): Promise<void> {
    for (const grant of this.#held.values()) this.memory.release(grant, { keepFor: 0, failed: true });
    return this.memory.stop();
  }
}

export function modestHarness(table: LockTable): ProviderHarness {
  const memory = new MemoryBackend(table).harness();
  const beneath = (provider: LockProvider) => (provider instanceof ModestProvider ? provider.memory : provider);
  return {
    ...memory,
    capabilities: new ModestProvider(table).capabilities,
    create: () => new ModestProvider(table),
    lease: SESSION,
    faults: {
      ...memory.faults,
      cutOff: async (provider) => memory.faults?.cutOff?.(beneath(provider)),
      restore: async (provider) => memory.faults?.restore?.(beneath(provider)),
    },
  };
}
