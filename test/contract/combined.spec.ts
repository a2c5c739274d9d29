import { CombinedProvider } from '../../lib/providers/combined/combined-provider.js';
import type { CombinedProviderOptions } from '../../lib/providers/combined/combined-options.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { LockTable } from '../../lib/providers/memory/lock-table.js';
import { describeLockProvider, FakeClock, type ProviderHarness } from '../../lib/testing/index.js';
import { HostedComposite } from './hosted-composite.js';
import { MemoryBackend } from './memory-backend.js';

/** Memories that each provider has its own cable to. */
function memories(count: number, quorum: CombinedProviderOptions['quorum']): ProviderHarness {
  const backends = Array.from({ length: count }, () => new MemoryBackend(new LockTable()));
  const harnesses = backends.map((backend) => backend.harness());
  const engines = backends.map((_, index) => `memory ${index}`);
  const create = () =>
    new HostedComposite(
      new CombinedProvider({ engines, quorum }),
      Object.fromEntries(backends.map((backend, index) => [engines[index], backend.create()])),
    );
  const inAll = (fault: 'cutOff' | 'restore') => async (provider: LockProvider) => {
    const { members } = provider as HostedComposite<Record<string, LockProvider>>;
    for (const [index, member] of Object.values(members).entries()) await harnesses[index]?.faults?.[fault]?.(member);
  };
  return {
    capabilities: create().capabilities,
    create,
    faults: {
      revoke: (namespace, key) => Promise.all(harnesses.map(async ({ faults }) => faults?.revoke?.(namespace, key))),
      cutOff: inAll('cutOff'),
      restore: inAll('restore'),
    },
    leftovers: async () => backends.reduce((sum, { table }) => sum + table.size, 0),
  };
}

describeLockProvider('two memories, all of them', { ...memories(2, 'all'), clock: new FakeClock() });
describeLockProvider('three memories, the majority', { ...memories(3, 'majority'), clock: new FakeClock() });
