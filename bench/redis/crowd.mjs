// A process with many waiters for one key that another process holds.
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { load } from '../builds.mjs';

/** Callers that arrive in one turn of the event loop: few enough that a stall is caused by the library. */
const AT_ONCE = 100;

const [, , build, url, key, count] = process.argv;
const waiters = Number(count);
process.once('disconnect', () => process.exit());

const { LockManager, RedisLockProvider, namespace } = await load(build, 'redis');
const locks = new LockManager({ providers: { redis: new RedisLockProvider({ url }) }, namespace });
await locks.start();
const warmUp = async () => (await locks.acquire('warm-up', { wait: '60s' })).release();
await Promise.all(Array.from({ length: 1_000 }, warmUp));

let queued = 0;
const allQueued = new Promise((resolve) => {
  locks.events.on('waiting', () => {
    queued += 1;
    if (queued === waiters) resolve();
  });
});
const before = heap();
const delay = monitorEventLoopDelay({ resolution: 1 });
delay.enable();
const startedAt = performance.now();
for (let index = 0; index < waiters; index += 1) {
  if (index % AT_ONCE === 0) await nextTurn();
  void locks.acquire(key, { wait: Infinity });
}
await allQueued;
process.send({ enqueued: performance.now() - startedAt });
process.once('message', () => {
  delay.disable();
  process.send({ stall: delay.max / 1e6, heap: (heap() - before) / waiters });
});

function heap() {
  globalThis.gc();
  return process.memoryUsage().heapUsed;
}
