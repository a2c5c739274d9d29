// Compiled by `npm run typecheck`, never run.
import type { Cluster, Redis } from 'ioredis';
import type { Cluster as Cluster5, Redis as Redis5 } from 'ioredis5';
import { createClient, createClientPool, createCluster, createSentinel } from 'redis';
import * as nodeRedis5 from 'redis5';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';

declare const redis: Redis;
declare const redis5: Redis5;
declare const cluster: Cluster;
declare const cluster5: Cluster5;

new RedisLockProvider({ client: redis });
new RedisLockProvider({ client: redis5 });
new RedisLockProvider({ client: cluster });
new RedisLockProvider({ client: cluster5 });

const rootNodes = [{ url: 'redis://localhost' }];
const sentinel = { name: 'locks', sentinelRootNodes: [{ host: 'localhost', port: 26379 }] };
new RedisLockProvider({ client: createClient() });
new RedisLockProvider({ client: createClient({ RESP: 2 }) });
new RedisLockProvider({ client: createCluster({ rootNodes }) });
new RedisLockProvider({ client: createSentinel(sentinel) });
new RedisLockProvider({ client: nodeRedis5.createClient() });
new RedisLockProvider({ client: nodeRedis5.createClient({ RESP: 3 }) });
new RedisLockProvider({ client: nodeRedis5.createCluster({ rootNodes }) });
// @ts-expect-error: version 5 does not show its options
new RedisLockProvider({ client: nodeRedis5.createSentinel(sentinel) });
// @ts-expect-error: a pool, which cannot be duplicated
new RedisLockProvider({ client: createClientPool() });
// @ts-expect-error: not a client
new RedisLockProvider({ client: 'redis://localhost' });

// As in an application without `exactOptionalPropertyTypes`, in which an optional property may be undefined.
const url = process.env['REDIS_URL'];
// @ts-expect-error: the variable may not be set
new RedisLockProvider({ url });
// @ts-expect-error: the same in an option that is a client
new RedisLockProvider({ client: url === undefined ? undefined : redis });
// @ts-expect-error: none of client, url, cluster and options
new RedisLockProvider({ waitReplicas: 1 });
// @ts-expect-error: two of them
new RedisLockProvider({ url: 'redis://localhost', client: redis });
// @ts-expect-error: the variable may not be set
new RedlockLockProvider({ nodes: [{ url }, { url: 'redis://b' }, { url: 'redis://c' }], maxLease: '1m' });
new RedisLockProvider({ url: 'redis://localhost', client: undefined, commandTimeout: '1s' });
new RedisLockProvider({ cluster: ['redis://a'], options: { redisOptions: {} } });
new RedisLockProvider(url === undefined ? { client: redis } : { url });

new RedlockLockProvider({
  nodes: [{ client: redis }, { client: createClient() }, { url: 'redis://c' }],
  maxLease: '1m',
});
