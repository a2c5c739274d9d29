import type { LockProvider } from '../../lib/api/lock-provider.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { describeLockProvider, type ProviderHarness } from '../../lib/provider-kit/index.js';
import { FakeClock } from '../../lib/testing/index.js';
import { DistantCasProvider, SharedValues } from '../failover/fleet-rig.js';
import { HostedComposite } from './hosted-composite.js';
import { type Cable, DistantBackend, DistantProvider } from './memory-server.js';

const SECOND = 1_000;

/** Two providers in memory, and the record on a third. */
function harness(fair: boolean): ProviderHarness {
  const clock = new FakeClock();
  const stores = { a: new MemoryStore(), b: new MemoryStore(), record: new MemoryStore() };
  const each = Object.values(stores);
  const shared = new SharedValues();
  const cablesOf = (provider: LockProvider) =>
    Object.values((provider as HostedComposite<Record<string, LockProvider & { cable: Cable }>>).hosted).map(
      ({ cable }) => cable,
    );
  return {
    clock,
    lease: SECOND,
    records: true,
    // A member keeps the lock of a process that died for at least 10 s.
    bounds: { expiry: 9 * SECOND, takeOver: 10.5 * SECOND },
    capabilities: {
      shared: true,
      fair: false,
      fencing: true,
      wideTokens: true,
      lease: 'session',
      minHold: false,
      forceRelease: true,
    },
    create: () =>
      new HostedComposite(new FailoverLockProvider({ providers: ['a', 'b'], casStore: 'record', window: SECOND }), {
        a: new DistantProvider(stores.a, DistantBackend, fair),
        b: new DistantProvider(stores.b, DistantBackend, fair),
        record: new DistantCasProvider(stores.record, shared),
      }),
    faults: {
      revoke: (namespace, key) => Promise.resolve(each.forEach((store) => store.free(`${namespace}:${key}`))),
      cutOff: (provider) => Promise.resolve(cablesOf(provider).forEach((cable) => cable.cutOff())),
      silence: (provider) => Promise.resolve(cablesOf(provider).forEach((cable) => cable.silence())),
      restore: (provider) => Promise.resolve(cablesOf(provider).forEach((cable) => cable.restore())),
    },
    remainingLocks: () => Promise.resolve(each.reduce((sum, { size }) => sum + size, 0)),
  };
}

describeLockProvider('failover', harness(true));
describeLockProvider('failover on members without a queue', harness(false));
