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
 * Supports only what every backend must: session locks and nothing else. The kit's cases for undeclared capabilities
 * then run as well.
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
    throw new LockConfigError('This backend has no list.');
  }

  override renew(request: AcquireRequest): Promise<RenewOutcome> {
    return super.renew(request, SESSION);
  }

  override release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    this.#held.delete(request);
    return super.release(request, options);
  }

  /** Ends the session and every lock held under it. */
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

/**
 * Wraps the backends to execute the rule for several keys: a chained request is sent only if the one before it was
 * granted.
 */
function chaining(harness: ProviderHarness): ProviderHarness {
  return {
    ...harness,
    create: async () => {
      const provider: LockProvider = await harness.create();
      const createBackend = provider.createBackend.bind(provider);
      // The harness identifies the provider by reference.
      provider.createBackend = (context) => chained(createBackend(context));
      return provider;
    },
  };
}

function chained(backend: LockBackend): LockBackend {
  const acquire = backend.acquire.bind(backend);
  /** Whether the last attempt of a request was granted without waiting. */
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
      // The request was aborted meanwhile.
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

/** A store on another machine, whose wall clock this process can't set. */
class DistantStore extends MemoryStore {
  override wallTime(): number {
    return performance.timeOrigin + performance.now();
  }
}

const native = (store = new MemoryStore()) => new MemoryServer(store).harness();
const queued = () => new MemoryServer(new MemoryStore(), DistantBackend, false).harness();

describeLockProvider('memory, fake clock', { ...native(), clock: new FakeClock() });
describeLockProvider('memory, executing the rule for several keys', {
  ...chaining(native()),
  clock: new FakeClock(),
});
describeLockProvider('memory, real clock', native(new DistantStore()));
describeLockProvider('memory, behind the local queue', { ...queued(), clock: new FakeClock() });
describeLockProvider('memory, with session locks only', {
  ...modestHarness(new MemoryStore()),
  clock: new FakeClock(),
});
