import { load, managed } from './lock-manager.mjs';
import { lifetime } from './redis.mjs';

/** Same as `redis`, but with a node-redis client. */
export * from './redis.mjs';
export const title = 'redis, by node-redis';

export async function connect({ library, ports }) {
  const { createClient } = await import('redis');
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const client = createClient({ url: `redis://127.0.0.1:${ports[0]}` });
  const provider = new RedisLockProvider({ client });
  return managed({ library, provider, options: { lease: lifetime }, lifetime });
}
