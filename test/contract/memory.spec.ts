import { LockConfigError } from '../../lib/api/errors.js';
import type {
  AcquireRequest,
  BackendContext,
  Grant,
  LockBackend,
  LockCapabilities,
  LockProvider,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../lib/api/lock-provider.js';
import { describeLockProvider, type ProviderHarness } from '../../lib/provider-kit/index.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { FakeClock } from '../../lib/testing/index.js';
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

function modestHarness(store: MemoryStore): ProviderHarness {
  return {
    ...new MemoryServer(store).harness(),
    capabilities: CAPABILITIES,
    create: () => new DistantProvider(store, ModestBackend),
    lease: SESSION,
  };
}

/** The same backends, which execute the rule of several keys: a request behind another is asked for when that is granted, and not at all otherwise. */
function chaining(harness: ProviderHarness): ProviderHarness {
  return {
    ...harness,
    create: async () => {
      const provider: LockProvider = await harness.create();
      const createBackend = provider.createBackend.bind(provider);
      // The harness knows the provider by its identity.
      provider.createBackend = (context) => chained(createBackend(context));
      return provider;
    },
  };
}

function chained(backend: LockBackend): LockBackend {
  const acquire = backend.acquire.bind(backend);
  /** Whether the ask that was sent last was granted without waiting. */
  const grants = new WeakMap<AcquireRequest, Promise<boolean>>();
  backend.chains = () => true;
  backend.acquire = async (request) => {
    const before = request.after && grants.get(request.after);
    let decide!: (isGranted: boolean) => void;
    grants.set(request, new Promise((resolve) => (decide = resolve)));
    const waits = request.waits.bind(request);
    request.waits = (instead) => {
      decide(false);
      waits(instead);
    };
    try {
      if (before && !(await before)) return 'not-asked';
      // It was given up meanwhile.
      if (before && request.signal.aborted) return 'not-asked';
      const answer = await acquire(request);
      decide(typeof answer === 'object');
      return answer;
    } finally {
      decide(false);
    }
  };
  return backend;
}

/** On another machine, whose wall clock nobody in this process can set. */
class DistantStore extends MemoryStore {
  override wallTime(): number {
    return performance.timeOrigin + performance.now();
  }
}

const native = (store = new MemoryStore()) => new MemoryServer(store).harness();
const queued = () => new MemoryServer(new MemoryStore(), DistantBackend, false).harness();

describeLockProvider('memory, fake clock', { ...native(), clock: new FakeClock() });
describeLockProvider('memory that executes the rule of several keys', {
  ...chaining(native()),
  clock: new FakeClock(),
});
describeLockProvider('memory, real clock', native(new DistantStore()));
describeLockProvider('memory behind the local queue', { ...queued(), clock: new FakeClock() });
describeLockProvider('memory with sessions and nothing else', {
  ...modestHarness(new MemoryStore()),
  clock: new FakeClock(),
});
