import type { LockCapabilities, LockProvider } from '../../lib/api/lock-provider.js';
import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { describeLockProvider, type ProviderHarness } from '../../lib/provider-kit/index.js';
import { FakeClock } from '../../lib/testing/index.js';
import { DistantCasProvider, SharedValues } from '../failover/fleet-rig.js';
import { HostedComposite } from './hosted-composite.js';
import { type Cable, DistantBackend, DistantProvider, MemoryServer } from './memory-server.js';

const SECOND = 1_000;

type Members = Readonly<Record<string, LockProvider & { readonly cable: Cable }>>;

/** Returns the harness of a composite whose members use these stores, each over its own cable. */
function harnessOf(
  capabilities: LockCapabilities,
  stores: readonly MemoryStore[],
  composite: () => LockProvider,
  members: () => Members,
): ProviderHarness {
  const cablesOf = (provider: LockProvider) =>
    Object.values((provider as HostedComposite<Members>).hosted).map(({ cable }) => cable);
  return {
    clock: new FakeClock(),
    capabilities,
    create: () => new HostedComposite(composite(), members()),
    faults: {
      revoke: (namespace, key) => Promise.resolve(stores.forEach((store) => store.free(`${namespace}:${key}`))),
      cutOff: (provider) => Promise.resolve(cablesOf(provider).forEach((cable) => cable.cutOff())),
      silence: (provider) => Promise.resolve(cablesOf(provider).forEach((cable) => cable.silence())),
      restore: (provider) => Promise.resolve(cablesOf(provider).forEach((cable) => cable.restore())),
    },
    remainingLocks: () => Promise.resolve(stores.reduce((sum, { size }) => sum + size, 0)),
  };
}

function combined(): ProviderHarness {
  const [a, b] = [new MemoryServer(new MemoryStore()), new MemoryServer(new MemoryStore())];
  const { capabilities } = a.harness();
  return harnessOf(
    { ...capabilities, fencing: false, limits: false, list: false, ordered: false },
    [a.store, b.store],
    () => new CombinedLockProvider({ providers: ['a', 'b'] }),
    () => ({ a: a.create(), b: b.create() }),
  );
}

/** Keeps its record on a third provider. */
function failover(fair: boolean): ProviderHarness {
  const stores = { a: new MemoryStore(), b: new MemoryStore(), record: new MemoryStore() };
  const shared = new SharedValues();
  const harness = harnessOf(
    {
      ...{ shared: true, fair: false, fencing: true, wideTokens: true },
      ...{ lease: 'session', minHold: false, forceRelease: true },
    },
    Object.values(stores),
    () => new FailoverLockProvider({ providers: ['a', 'b'], casStore: 'record', window: SECOND }),
    () => ({
      a: new DistantProvider(stores.a, DistantBackend, fair),
      b: new DistantProvider(stores.b, DistantBackend, fair),
      record: new DistantCasProvider(stores.record, shared),
    }),
  );
  // A member keeps a dead process's lock for at least 10 s.
  return { ...harness, lease: SECOND, records: true, bounds: { expiry: 9 * SECOND, takeOver: 10.5 * SECOND } };
}

describeLockProvider('combined of two memories', combined());
describeLockProvider('failover', failover(true));
describeLockProvider('failover on members without a queue', failover(false));
