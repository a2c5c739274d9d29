import { Redis } from 'ioredis';
import { RedisLockProvider } from 'nestjs-distributed-lock/redis';
import type { Backend } from './backend.js';
import { RedisStock } from './redis-stock.js';

/** Any number of processes on one Redis, which keeps the locks and the stock. */
export function redis(url: string): Backend {
  const client = new Redis(url);
  return { locks: { provider: new RedisLockProvider({ client }) }, stock: new RedisStock(client) };
}
