export { RedlockLockProvider } from './redlock-lock-provider.js';
export type { RedlockNodeOptions, RedlockLockProviderOptions } from './redlock-options.js';
export type { RedisClient, RedisServerOptions } from '../redis/client/redis-options.js';
export type {
  IoredisClient,
  IoredisCluster,
  IoredisClusterConnection,
  IoredisConnection,
  IoredisNode,
} from '../redis/client/ioredis.js';
export type {
  NodeRedisClient,
  NodeRedisCluster,
  NodeRedisConnection,
  NodeRedisSentinel,
} from '../redis/client/node-redis.js';
export type { RedisConnection } from '../redis/client/redis-connection.js';
