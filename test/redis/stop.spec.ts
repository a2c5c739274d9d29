import { Redis } from 'ioredis';
import { createCluster, createSentinel } from 'redis';
import type { RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { type RedisCluster, startRedisCluster } from '../servers/redis-cluster.js';
import { type RedisSentinels, startRedisSentinels } from '../servers/redis-sentinels.js';
import { CountingClock } from './counting-clock.js';
import { backendOf, until } from './seam.js';

/** How long a provider has been at work when it is stopped, in ms: in the handshake, in discovery, when it is up. */
const MOMENTS = [-1, 0, 1, 2, 3, 4, 6, 8, 12, 20];

describe('a provider that is stopped at any moment leaves no connection and no timer', () => {
  let cluster: RedisCluster;
  let sentinels: RedisSentinels;
  const admins: Redis[] = [];

  beforeAll(async () => {
    // No test waits until a server counts as dead. The Cluster's start tries a lost handshake again after its time.
    cluster = await startRedisCluster({ nodeTimeout: 5_000 });
    sentinels = await startRedisSentinels({ downAfter: 60_000 });
    for (const { port } of [...sentinels.sentinels, sentinels.master]) admins.push(new Redis({ port, protocol: 2 }));
    admins.push(...cluster.masters.map(({ admin }) => admin));
  }, 60_000);
  afterAll(async () => {
    for (const admin of admins) admin.disconnect();
    await Promise.all([cluster.stop(), sentinels.stop()]);
  });

  /** Of clients: servers have connections with each other as well. */
  const clients = async () => {
    const lists = await Promise.all(admins.map(async (admin) => String(await admin.call('CLIENT', ['LIST']))));
    return lists.flatMap((list) => list.split('\n')).filter((line) => / (name=locks-test) /.test(line)).length;
  };

  const clock = new CountingClock();

  const name = 'locks-test';
  const sources: [string, () => RedisLockProviderOptions][] = [
    ['Sentinel', () => ({ options: { ...sentinels.options, connectionName: 'locks-test' }, waitReplicas: 1 })],
    ['a Cluster', () => ({ cluster: cluster.addresses, options: { redisOptions: { connectionName: 'locks-test' } } })],
    ['Sentinel, by node-redis', () => ({ client: createSentinel(sentinelOptions()), waitReplicas: 1 })],
    [
      'a Cluster, by node-redis',
      () => ({
        client: createCluster({ rootNodes: cluster.addresses.map((socket) => ({ socket })), defaults: { name } }),
      }),
    ],
  ];

  const sentinelOptions = () => ({
    name: sentinels.options.name,
    sentinelRootNodes: sentinels.options.sentinels,
    nodeClientOptions: { name },
    sentinelClientOptions: { name },
  });

  it.each(sources)(
    'while it starts: %s',
    async (_, options) => {
      for (const moment of MOMENTS) {
        const backend = backendOf(options(), { clock });
        const connected = backend.connect().catch((error: unknown) => error);
        if (moment >= 0) await new Promise((resolve) => setTimeout(resolve, moment));
        await backend.close();
        await connected;
        await until(() => clock.armed === 0, `no timer is set, stopped after ${moment} ms`);
      }
      await until(async () => (await clients()) === 0, 'all connections are closed');
    },
    60_000,
  );

  it.each(sources)(
    'while it connects anew: %s',
    async (_, options) => {
      for (const moment of MOMENTS) {
        const backend = backendOf(options(), { clock });
        await backend.connect();
        for (const admin of admins) await admin.call('CLIENT', ['KILL', 'TYPE', 'normal', 'SKIPME', 'yes']);
        await new Promise((resolve) => setTimeout(resolve, moment * 5));
        await backend.close();
        await until(() => clock.armed === 0, `no timer is set, stopped after ${moment} ms`);
      }
      await until(async () => (await clients()) === 0, 'all connections are closed');
    },
    60_000,
  );

  it('while a node does not answer the search for the Cluster', async () => {
    const frozen = cluster.masters[0]?.server;
    frozen?.signal('SIGSTOP');
    try {
      const options = { cluster: cluster.addresses.slice(0, 1), commandTimeout: '300ms' };
      const backend = backendOf(options, { clock });
      const connected = backend.connect().catch((error: unknown) => error);
      await new Promise((resolve) => setTimeout(resolve, 50));
      await backend.close();
      expect(await connected).toBeInstanceOf(Error);
      await until(() => clock.armed === 0, 'no timer is set');
    } finally {
      frozen?.signal('SIGCONT');
    }
  });
});
