// One process: what `LockService.withLock` costs in a build's own code, on a stand-in for Redis or on the memory
// provider.
import { load } from '../builds.mjs';
import { allocatedBytes, cpuNanoseconds, lasting, median } from '../measure.mjs';
import { StandIn } from './stand-in.mjs';

const FIRST = 400;
const WARM_UP = 40_000;
const KEYS = 8;

const [, , build, provider] = process.argv;
const { LockManager, LockService, MemoryLockProvider, RedisLockProvider, namespace } = await load(build, 'redis');
const client = new StandIn();
await { redis, memory }[provider]();

/** Sends the time of a cycle without the stand-in, in µs, and its bytes including the stand-in. */
async function redis() {
  const { cycle, stop } = await start(new RedisLockProvider({ client }));
  const first = await cycles(cycle, FIRST);
  await cycles(cycle, lasting(WARM_UP));
  const warm = await cycles(cycle, lasting(8_000));
  const bytes = await allocatedBytes(cycle);
  client.evicts = true;
  const evicted = await cycles(cycle, lasting(1_500));
  process.send({ first, warm, evicted, bytes });
  await stop();
}

/** Sends the CPU time of a cycle, in µs. */
async function memory() {
  const { cycle, stop } = await start(new MemoryLockProvider());
  await cpuNanoseconds(lasting(WARM_UP), cycle);
  process.send({ memory: (await cpuNanoseconds(lasting(100_000), cycle)) / 1_000 });
  await stop();
}

async function start(instance) {
  const manager = new LockManager({ providers: { [provider]: instance }, namespace });
  await manager.start();
  const locks = new LockService(manager);
  const keys = Array.from({ length: KEYS }, (_, index) => `key-${index}`);
  const task = async () => undefined;
  let count = 0;
  return { cycle: () => locks.withLock(keys[(count += 1) % KEYS], task), stop: () => manager.stop() };
}

/** The median of `count` cycles, in µs. Other programs on the core interrupt only a few of them. */
async function cycles(cycle, count) {
  const times = [];
  const callsBefore = client.calls;
  for (let index = 0; index < count; index += 1) {
    if (client.evicts) client.evict();
    client.outside = 0;
    const startedAt = performance.now();
    await cycle();
    times.push((performance.now() - startedAt - client.outside) * 1_000);
  }
  const calls = (client.calls - callsBefore) / count;
  if (calls !== 2)
    throw new Error(`The stand-in received ${calls} script calls in one cycle instead of one acquire and one release.`);
  return median(times);
}
