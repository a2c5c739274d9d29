import { LockTable } from '../../lib/providers/memory/lock-table.js';
import { describeLockProvider, FakeClock, type ProviderHarness } from '../../lib/testing/index.js';
import { MemoryBackend } from './memory-backend.js';

function harness(options: { clock?: FakeClock; queue: 'native' | 'engine' }): ProviderHarness {
  const backend = new MemoryBackend(new LockTable(), options.queue);
  return { ...backend.harness(), ...(options.clock && { clock: options.clock }) };
}

describeLockProvider('memory, fake clock', harness({ clock: new FakeClock(), queue: 'native' }));
describeLockProvider('memory, real clock', harness({ queue: 'native' }));
describeLockProvider(
  "memory behind the engine's queue, fake clock",
  harness({ clock: new FakeClock(), queue: 'engine' }),
);
