import { systemClock } from '../../lib/core/toolkit/clock.js';
import { Redis } from 'ioredis';
import { createCluster, createSentinel } from 'redis';
import type { RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { type RedisCluster, startRedisCluster } from '../servers/redis-cluster.js';
import { type RedisSentinels, startRedisSentinels } from '../servers/redis-sentinels.js';
import { ArmedTimers } from '../../lib/provider-kit/armed-timers.js';
import { backendOf, granted, leave, redisForTests, RELEASE, request, startBackend, until, waitersAre } from './seam.js';

describe('resources left behind', () => {
  const redis = redisForTests();

  it('10 000 aborted attempts leave no key, no listener, and no timer', async () => {
    const clock = new ArmedTimers(systemClock);
    const { backend } = await startBackend({ url: redis.server.url }, { clock });
    const holder = granted(await backend.acquire(request('k', { lease: 600_000 })));
    let listeners = 0;
    for (let round = 0; round < 100; round += 1) {
      const asks = Array.from({ length: 100 }, () => request('k'));
      const answers = asks.map((ask) => {
        const { signal } = ask;
        const add = signal.addEventListener.bind(signal);
        const remove = signal.removeEventListener.bind(signal);
        signal.addEventListener = (...args: Parameters<typeof add>) => {
          listeners += 1;
          add(...args);
        };
        signal.removeEventListener = (...args: Parameters<typeof remove>) => {
          listeners -= 1;
          remove(...args);
        };
        return backend.acquire(ask);
      });
      // Some leave before they are sent, some before they are answered, some from the queue.
      if (round % 3 === 1) await Promise.resolve();
      if (round % 3 === 2) await backend.inspect('k');
      const released = asks.map((ask) => leave(backend, ask));
      expect(new Set(await Promise.all(answers))).toEqual(new Set(['busy']));
      expect(new Set(await Promise.all(released))).toEqual(new Set(['lost']));
    }
    await waitersAre(backend, 'k', 0);
    expect(await backend.release(holder, RELEASE)).toBe('released');
    expect(listeners).toBe(0);
    await until(() => clock.count === 0, 'no timer is set');
    await backend.close();
    // The counter stays. The record of when a process was last seen expires.
    const keys = await redis.admin.keys('*');
    expect(keys.filter((key) => !/^lock:\{\d+\}(seen)?$/.test(key))).toEqual([]);
    for (const key of keys.filter((name) => name.endsWith('seen')))
      expect(await redis.admin.pttl(key)).toBeGreaterThan(0);
  }, 120_000);
});

/**
 * How long the provider has run when it is stopped, in ms: during the handshake, during discovery, and when it is up.
 */
const MOMENTS = [-1, 0, 1, 2, 3, 4, 6, 8, 12, 20];

describe('a provider stopped at any moment leaves no connection and no timer', () => {
  let cluster: RedisCluster;
  let sentinels: RedisSentinels;
  const admins: Redis[] = [];

  beforeAll(async () => {
    // No test waits for a server to count as dead. Cluster startup retries a lost handshake after this time.
    cluster = await startRedisCluster({ nodeTimeout: 5_000 });
    sentinels = await startRedisSentinels({ downAfter: 60_000 });
    for (const { port } of [...sentinels.sentinels, sentinels.master]) admins.push(new Redis({ port, protocol: 2 }));
    admins.push(...cluster.masters.map(({ admin }) => admin));
  }, 60_000);
  afterAll(async () => {
    for (const admin of admins) admin.disconnect();
    await Promise.all([cluster.stop(), sentinels.stop()]);
  });

  /** Counts client connections: servers are also connected with each other. */
  const clients = async () => {
    const lists = await Promise.all(admins.map(async (admin) => String(await admin.call('CLIENT', ['LIST']))));
    return lists.flatMap((list) => list.split('\n')).filter((line) => / (name=locks-test) /.test(line)).length;
  };

  const clock = new ArmedTimers(systemClock);

  const name = 'locks-test';
  const sources: [string, () => RedisLockProviderOptions][] = [
    ['Sentinel', () => ({ options: { ...sentinels.options, connectionName: 'locks-test' }, waitReplicas: 1 })],
    ['a Cluster', () => ({ cluster: cluster.addresses, options: { redisOptions: { connectionName: 'locks-test' } } })],
    ['Sentinel with node-redis', () => ({ client: createSentinel(sentinelOptions()), waitReplicas: 1 })],
    [
      'a Cluster with node-redis',
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
    'during startup: %s',
    async (_, options) => {
      for (const moment of MOMENTS) {
        const backend = backendOf(options(), { clock });
        const connected = backend.connect().catch((error: unknown) => error);
        if (moment >= 0) await new Promise((resolve) => setTimeout(resolve, moment));
        await backend.close();
        await connected;
        await until(() => clock.count === 0, `no timer is set (stopped after ${moment} ms)`);
      }
      await until(async () => (await clients()) === 0, 'all connections are closed');
    },
    60_000,
  );

  it.each(sources)(
    'during a reconnect: %s',
    async (_, options) => {
      for (const moment of MOMENTS) {
        const backend = backendOf(options(), { clock });
        await backend.connect();
        for (const admin of admins) await admin.call('CLIENT', ['KILL', 'TYPE', 'normal', 'SKIPME', 'yes']);
        await new Promise((resolve) => setTimeout(resolve, moment * 5));
        await backend.close();
        await until(() => clock.count === 0, `no timer is set (stopped after ${moment} ms)`);
      }
      await until(async () => (await clients()) === 0, 'all connections are closed');
    },
    60_000,
  );

  it('while a node does not respond to Cluster discovery', async () => {
    const frozen = cluster.masters[0]?.server;
    frozen?.signal('SIGSTOP');
    try {
      const options = { cluster: cluster.addresses.slice(0, 1), commandTimeout: '300ms' };
      const backend = backendOf(options, { clock });
      const connected = backend.connect().catch((error: unknown) => error);
      await new Promise((resolve) => setTimeout(resolve, 50));
      await backend.close();
      expect(await connected).toBeInstanceOf(Error);
      await until(() => clock.count === 0, 'no timer is set');
    } finally {
      frozen?.signal('SIGCONT');
    }
  });
});
