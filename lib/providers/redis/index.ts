export { RedisLockProvider } from './redis-lock-provider.js';
export type {
  RedisClient,
  RedisConnectionOptions,
  RedisLockOptions,
  RedisLockProviderOptions,
  RedisServerOptions,
} from './client/redis-options.js';
export type {
  IoredisClient,
  IoredisCluster,
  IoredisClusterConnection,
  IoredisConnection,
  IoredisNode,
} from './client/ioredis.js';
export type { NodeRedisClient, NodeRedisCluster, NodeRedisConnection, NodeRedisSentinel } from './client/node-redis.js';
export type { RedisConnection } from './client/redis-connection.js';
