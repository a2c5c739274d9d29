import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { describeLockProvider, type ProviderHarness } from '../../lib/provider-kit/index.js';
import { FakeClock } from '../../lib/testing/index.js';
import { HostedComposite } from './hosted-composite.js';
import { type DistantProvider, MemoryServer } from './memory-server.js';

/** Two memories that each provider has its own cable to. */
function harness(): ProviderHarness {
  const servers = { a: new MemoryServer(new MemoryStore()), b: new MemoryServer(new MemoryStore()) };
  const each = Object.values(servers);
  const cablesOf = (provider: LockProvider) =>
    Object.values((provider as HostedComposite<Record<string, DistantProvider>>).hosted).map(({ cable }) => cable);
  const { capabilities } = servers.a.harness();
  return {
    capabilities: { ...capabilities, fencing: false, limits: false, list: false, ordered: false },
    create: () =>
      new HostedComposite(new CombinedLockProvider({ providers: ['a', 'b'] }), {
        a: servers.a.create(),
        b: servers.b.create(),
      }),
    faults: {
      revoke: (namespace, key) => Promise.resolve(each.forEach(({ store }) => store.free(`${namespace}:${key}`))),
      cutOff: (provider) => Promise.resolve(cablesOf(provider).forEach((cable) => cable.cutOff())),
      silence: (provider) => Promise.resolve(cablesOf(provider).forEach((cable) => cable.silence())),
      restore: (provider) => Promise.resolve(cablesOf(provider).forEach((cable) => cable.restore())),
    },
    remainingLocks: () => Promise.resolve(each.reduce((sum, { store }) => sum + store.size, 0)),
  };
}

describeLockProvider('combined of two memories', { ...harness(), clock: new FakeClock() });
