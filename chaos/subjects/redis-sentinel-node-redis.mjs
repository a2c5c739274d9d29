import { load, managed } from './lock-manager.mjs';
import { lifetime } from './redis-sentinel.mjs';

/** Same as `redis-sentinel`, but with a Sentinel client of node-redis. */
export * from './redis-sentinel.mjs';
export const title = 'redis, Sentinel, by node-redis';

export async function connect({ library, address: { sentinels, name } }) {
  const { createSentinel } = await import('redis');
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const client = createSentinel({ name, sentinelRootNodes: sentinels });
  const provider = new RedisLockProvider({ client, commandTimeout: 500 });
  return managed({ library, provider, options: { lease: lifetime }, lifetime });
}
