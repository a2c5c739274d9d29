import type { AcquireRequest, LockBackend, LockProvider } from '../../lib/api/lock-provider.js';
import type { ProviderHarness } from '../../lib/provider-kit/index.js';

/** The same backends, which execute the rule of several keys: a request behind another is asked for when that is granted, and not at all otherwise. */
export function chaining(harness: ProviderHarness): ProviderHarness {
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
