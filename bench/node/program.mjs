// One process: what an await costs before and after the process's first lock, and what locks cost the client.
import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { LockManager, MemoryLockProvider } from '../../dist/esm/index.js';
import { RedisLockProvider } from '../../dist/esm/redis.js';
import { cpuNanoseconds } from '../measure.mjs';

const [port, cycles] = process.argv.slice(2).map(Number);
const CALLERS = 64;
const nothing = Promise.resolve();

// Run it twice: the first run measures the compiler.
const awaits = () => cpuNanoseconds(50 * cycles, () => nothing);
await awaits();
const before = await awaits();

const memory = new LockManager({ providers: { memory: new MemoryLockProvider() } });
await memory.start();
const call = () => memory.withLock('order:42', () => 42);
await cpuNanoseconds(cycles, call);
const inMemory = (await cpuNanoseconds(2 * cycles, call)) / 1_000;
await awaits();
const after = await awaits();
await memory.stop();

const client = new Redis(port);
client.defineCommand('compareAndDelete', {
  numberOfKeys: 1,
  lua: "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
});
const raw = await perCycle(async (key) => {
  const holder = randomUUID();
  await client.set(`raw:${key}`, holder, 'PX', 10_000, 'NX');
  await client.compareAndDelete(`raw:${key}`, holder);
});
const locks = new LockManager({ providers: { redis: new RedisLockProvider({ client }) } });
await locks.start();
const ours = await perCycle(async (key) => {
  const lock = await locks.acquire(key, { lease: 10_000 });
  await lock.release();
});
await locks.stop();
client.disconnect();
process.send({ before, after, memory: inMemory, raw, ours });

/** CPU time of one cycle, in µs, with one cycle in flight for each caller. */
async function perCycle(cycle) {
  const round = () => Promise.all(Array.from({ length: CALLERS }, (_, caller) => cycle(`node-${caller}`)));
  await cpuNanoseconds(cycles / CALLERS, round);
  return (await cpuNanoseconds((2 * cycles) / CALLERS, round)) / CALLERS / 1_000;
}
