import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { FakeClock } from '../../lib/testing/index.js';
import { chaining } from './chaining.js';
import { DistantBackend, MemoryServer } from './memory-server.js';
import { modestHarness } from './modest-provider.js';

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
