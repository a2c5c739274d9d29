import type { LockCapabilities, LockProvider } from '../../lib/api/lock-provider.js';
import { FailoverProvider } from '../../lib/providers/failover/failover-provider.js';
import type { FailoverProviderOptions } from '../../lib/providers/failover/failover-options.js';
import { LockTable } from '../../lib/providers/memory/lock-table.js';
import { describeLockProvider, FakeClock, type ProviderHarness } from '../../lib/testing/index.js';
import { DistantRecordProvider, RecordStore } from '../failover/fleet-rig.js';
import { HostedComposite } from './hosted-composite.js';
import { DistantMemoryProvider } from './memory-backend.js';

const SECOND = 1_000;

/** Two engines in memory, and the record on a third provider. */
function harness(
  capabilities: Partial<LockCapabilities>,
  options: Partial<FailoverProviderOptions>,
  queue: LockCapabilities['queue'] = 'native',
): ProviderHarness {
  const clock = new FakeClock();
  const tables = [new LockTable(), new LockTable(), new LockTable()] as const;
  const store = new RecordStore();
  const parts = (provider: LockProvider) =>
    Object.values((provider as HostedComposite<Record<string, DistantMemoryProvider>>).members);
  return {
    clock,
    lease: SECOND,
    capabilities: {
      shared: true,
      fair: false,
      fencing: true,
      wideTokens: true,
      lease: 'session',
      minHold: false,
      forceRelease: true,
      queue: 'native',
      ...capabilities,
    },
    create: () => {
      const [a, b, c] = tables;
      const members = {
        a: new DistantMemoryProvider(a, queue),
        b: new DistantMemoryProvider(b, queue),
        record: new DistantRecordProvider(c, store),
      };
      return new HostedComposite(new FailoverProvider({ engines: ['a', 'b'], ...options }), members);
    },
    faults: {
      revoke: (namespace, key) => Promise.resolve(tables.forEach((table) => table.free(`${namespace}:${key}`))),
      cutOff: (provider) => Promise.resolve(parts(provider).forEach((part) => part.cutOff())),
      restore: (provider) => Promise.resolve(parts(provider).forEach((part) => part.restore())),
    },
    leftovers: () => Promise.resolve(tables.reduce((sum, { size }) => sum + size, 0)),
  };
}

const strict = { record: 'record', window: SECOND, lease: SECOND };

describeLockProvider('failover, strict', harness({}, strict));
describeLockProvider("failover, strict, behind the engine's queue", harness({}, strict, 'engine'));
describeLockProvider(
  'failover, available',
  harness({ fencing: false, wideTokens: false, lease: 'per-lock', minHold: true }, { mode: 'available' }),
);
