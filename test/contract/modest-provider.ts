import { LockConfigError } from '../../lib/api/errors.js';
import type {
  AcquireRequest,
  BackendContext,
  Grant,
  LockCapabilities,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../lib/api/lock-provider.js';
import type { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import type { ProviderHarness } from '../../lib/provider-kit/index.js';
import { type Cable, copyOf, DistantBackend, DistantProvider, MemoryServer } from './memory-server.js';

const SESSION = 600;

const CAPABILITIES: LockCapabilities = {
  shared: false,
  fair: false,
  fencing: false,
  lease: 'session',
  minHold: false,
  forceRelease: false,
};

/**
 * Can as little as a backend may: locks that live with its session and nothing else, so that the kit's questions for
 * what is not claimed are asked too.
 */
class ModestBackend extends DistantBackend {
  override readonly capabilities = CAPABILITIES;
  readonly #held = new Set<AcquireRequest>();

  constructor(context: BackendContext, store: MemoryStore, cable: Cable) {
    super(context, store, cable, false);
  }

  override async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { signal } = request;
    const answer = await super.acquire({ ...copyOf(request), lease: SESSION, signal });
    if (answer === 'busy') return 'busy';
    this.#held.add(request);
    return { ...answer, fencingToken: null };
  }

  override list(): never {
    throw new LockConfigError('It has no list.');
  }

  override renew(request: AcquireRequest): Promise<RenewOutcome> {
    return super.renew(request, SESSION);
  }

  override release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    this.#held.delete(request);
    return super.release(request, options);
  }

  /** Its session ends, and with it all that it holds. */
  override async close(): Promise<void> {
    for (const request of this.#held) await super.release(request, { keepFor: 0, failed: true });
  }
}

export function modestHarness(store: MemoryStore): ProviderHarness {
  return {
    ...new MemoryServer(store).harness(),
    capabilities: CAPABILITIES,
    create: () => new DistantProvider(store, ModestBackend),
    lease: SESSION,
  };
}
