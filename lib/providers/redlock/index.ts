export { RedlockProvider } from './redlock-provider.js';
export type { RedlockNodeOptions, RedlockProviderOptions } from './redlock-options.js';
export type { RedisClient, RedisConnection } from '../redis/client/redis-client.js';
