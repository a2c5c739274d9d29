export { RedisLockProvider } from './redis-lock-provider.js';
export type { RedisLockProviderOptions } from './redis-options.js';
export type {
  RedisClient,
  RedisClusterClient,
  RedisClusterConnection,
  RedisClusterNode,
  RedisConnection,
} from './redis-client.js';
