export { RedisLockProvider } from './redis-lock-provider.js';
export type { RedisLockProviderOptions } from './client/redis-options.js';
export type {
  RedisClient,
  RedisClusterClient,
  RedisClusterConnection,
  RedisClusterNode,
  RedisConnection,
} from './client/redis-client.js';
