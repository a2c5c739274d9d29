import { LockTable } from '../../lib/providers/memory/lock-table.js';
import { describeLockProvider, FakeClock } from '../../lib/testing/index.js';
import { MemoryBackend } from './memory-backend.js';
import { modestHarness } from './modest-provider.js';

const native = () => new MemoryBackend(new LockTable()).harness();
const queued = () => new MemoryBackend(new LockTable(), 'engine').harness();

describeLockProvider('memory, fake clock', { ...native(), clock: new FakeClock() });
describeLockProvider('memory, real clock', native());
describeLockProvider("memory behind the engine's queue", { ...queued(), clock: new FakeClock() });
describeLockProvider('memory with sessions and nothing else', {
  ...modestHarness(new LockTable()),
  clock: new FakeClock(),
});
