// A process with fake timers that takes locks. It prints its results, or nothing if it hangs.
// argv: the folder of the compiled library, the engine ('sinon' or 'node'), when to install the fakes ('import', before
// the library is loaded; 'boot'; 'held', while a lock is held), and the URL of Redis to use it as the provider.
import { writeSync } from 'node:fs';
import { mock } from 'node:test';
import FakeTimers from '@sinonjs/fake-timers';

const [, , folder, engine, moment, url] = process.argv;
const { setTimeout } = globalThis;

function install(now) {
  if (now !== moment) return;
  if (engine === 'node') mock.timers.enable();
  // With Redis, nextTick stays real: Node's sockets call the global one.
  else FakeTimers.install({ toNotFake: url ? ['nextTick'] : [] });
}

install('import');
const { LockManager, MemoryLockProvider } = await import(`${folder}/index.js`);
const { RedisLockProvider } = await import(`${folder}/providers/redis/index.js`);

install('boot');
const provider = url ? new RedisLockProvider({ url }) : new MemoryLockProvider();
const locks = new LockManager({ providers: { main: provider } });
await locks.start();

const lock = await locks.acquire('order', { lease: 500 });
install('held');
const heldAtFirst = lock.isHeld();
// Longer than the lease in real time, so the watchdog must renew.
await new Promise((resolve) => setTimeout(resolve, 1_000));
const heldLater = lock.isHeld();
const busy = await locks.acquire('order', { wait: 20 }).catch(({ code }) => code);
const released = await lock.release();
const value = await locks.withLock('order', () => 'done');
await locks.stop();
writeSync(1, JSON.stringify({ heldAtFirst, heldLater, busy, released, value }));
process.exit();
