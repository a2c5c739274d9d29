// The candidates for limited locks. Each makes a function that acquires a share of `key` and resolves to a function that releases it.
import { Redis } from 'ioredis';
import { builds, load } from '../builds.mjs';

const LEASE = 10_000;

/** The candidate `name` with this limit on the server at `port`. */
export async function candidate(name, port, limit) {
  const acquire = builds.includes(name) ? await ours(name, port, limit) : await peer(port, limit);
  return { acquire };
}

async function ours(build, port, limit) {
  const { LockManager, RedisLockProvider, namespace } = await load(build, 'redis');
  const client = new Redis(port, { lazyConnect: true });
  const locks = new LockManager({ providers: { redis: new RedisLockProvider({ client }) }, namespace });
  await locks.start();
  return async (key) => {
    const lock = await locks.acquire(key, { limit, wait: '60s', lease: LEASE });
    return () => lock.release();
  };
}

async function peer(port, limit) {
  const { semaphoreOf } = await import('../peers/adapters.mjs');
  return semaphoreOf(new Redis(port), limit);
}
