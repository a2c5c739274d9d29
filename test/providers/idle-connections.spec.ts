import 'reflect-metadata';
import { readFileSync } from 'node:fs';
import { type INestApplicationContext, Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { CombinedLockProvider } from '../../lib/composite.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { DistributedLockModule, RunOnce } from '../../lib/index.js';
import { RedisLockProvider, type RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { IOREDIS, IOREDIS_5, NODE_REDIS, NODE_REDIS_5 } from '../redis/client-libraries.js';
import { ScriptedSentinel } from '../redis/scripted-sentinel.js';
import { redisForTests, until } from '../redis/seam.js';
import { type Quorum, startQuorum, wiresTo } from '../redlock/quorum.js';
import { startRedisCluster } from '../servers/redis-cluster.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { type SqlServer, startMySqlOrMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { itUnless } from '../unless.js';

let runs = 0;

@Injectable()
class Nightly {
  @RunOnce('nightly', { minHold: '1m' })
  async report(): Promise<void> {
    runs += 1;
    await Promise.resolve();
  }
}

describe.each([IOREDIS, IOREDIS_5, NODE_REDIS, NODE_REDIS_5])('idle connections, with %s', (library) => {
  const redis = redisForTests();
  let nat: TcpProxy;
  const running: LockManager[] = [];
  const apps: INestApplicationContext[] = [];

  beforeEach(async () => {
    nat = await startTcpProxy(redis.server.port);
  });
  afterEach(async () => {
    await Promise.all(running.splice(0).map((locks) => locks.stop()));
    await Promise.all(apps.splice(0).map((app) => app.close()));
    await nat.close();
  });

  const options = (commandTimeout: number): RedisLockProviderOptions => ({
    ...library.server(`redis://127.0.0.1:${nat.port}`),
    commandTimeout,
  });
  const start = async (settings: RedisLockProviderOptions): Promise<LockManager> => {
    const locks = new LockManager({ providers: { redis: new RedisLockProvider(settings) }, shutdownGrace: 0 });
    running.push(locks);
    await locks.start();
    return locks;
  };

  it('run a job with @RunOnce in one of two instances after a NAT has dropped them all', async () => {
    runs = 0;
    for (let each = 0; each < 2; each += 1) {
      const module = await Test.createTestingModule({
        imports: [DistributedLockModule.forRoot({ provider: new RedisLockProvider(options(1_500)) })],
        providers: [Nightly],
      }).compile();
      apps.push(await module.init());
    }
    nat.drop();
    await Promise.all(apps.map((app) => app.get(Nightly).report()));
    expect(runs).toBe(1);
  });

  it.each([0, 20])('are replaced within a call with wait: %p', async (wait) => {
    const locks = await start(options(600));
    nat.drop();
    expect(await locks.withLock('k', () => 'done', { wait })).toBe('done');
    nat.drop();
    const lock = await locks.tryAcquire('k');
    expect(lock?.isHeld()).toBe(true);
    await lock?.release();
  });

  it('are replaced with waitReplicas, which uses one more connection', async () => {
    await redis.admin.config('SET', 'repl-diskless-sync-delay', '0');
    const replica = await startRedisServer({ args: ['--replicaof', '127.0.0.1', String(redis.server.port)] });
    await until(
      async () => (await redis.admin.info('replication')).includes('state=online'),
      'the replica is connected',
    );
    const locks = await start({ ...options(600), waitReplicas: 1 });
    await locks.withLock('warm', () => undefined);
    nat.drop();
    expect(await locks.withLock('k', () => 'done', { wait: 0 })).toBe('done');
    await replica.stop();
  });

  it('fail no call with wait: 0 after the server has closed them', async () => {
    const locks = await start(options(2_000));
    let isLost = false;
    locks.events.on('unavailable', () => (isLost = true));
    await redis.admin.call('client', 'KILL', 'TYPE', 'normal');
    // Works whether the process has not noticed it yet, or has and pauses before it reconnects.
    const early = locks.tryAcquire('early');
    await until(() => isLost, 'the loss is noticed');
    const calls = Array.from({ length: 5 }, (_, index) => locks.tryAcquire(`k${index}`));
    expect((await Promise.all([early, ...calls])).map((lock) => lock?.isHeld())).toEqual(Array(6).fill(true));
  });

  it('fail a call with wait: 0 within bounded time while the server is down, and later calls immediately', async () => {
    const locks = await start(options(500));
    nat.refuse();
    await expect(locks.tryAcquire('k')).rejects.toThrow(LockUnavailableError);
    // Once the server has been known to be down for more than a second, no call waits for a connection.
    await until(async () => {
      const from = performance.now();
      await expect(locks.tryAcquire('k')).rejects.toThrow(LockUnavailableError);
      return performance.now() - from < 100;
    }, 'a call fails immediately');
    nat.admit();
    await until(async () => (await locks.tryAcquire('k').catch(() => null)) !== null, 'the connection is back');
  });

  itUnless(process.platform === 'linux' ? undefined : 'only Linux shows the timers of its sockets')(
    'are kept alive by the OS',
    async () => {
      await start(options(2_000));
      expect(keepAliveTimers(nat.port).length).toBeGreaterThanOrEqual(2);
      // Before the last command is answered, the OS waits for its acknowledgement instead.
      await until(() => keepAliveTimers(nat.port).every((timer) => timer <= 10_000), 'all connections are kept alive');
    },
  );
});

/** Keys on each master of a Cluster. */
const KEYS = Array.from({ length: 12 }, (_, index) => `k${index}`);

describe.each([IOREDIS, IOREDIS_5, NODE_REDIS, NODE_REDIS_5])(
  'connections that a NAT has dropped, with %s',
  (library) => {
    const take = async (options: RedisLockProviderOptions, nats: readonly TcpProxy[], keys: readonly string[]) => {
      const provider = new RedisLockProvider({ ...options, commandTimeout: 600 });
      const locks = new LockManager({ providers: { redis: provider }, shutdownGrace: 0 });
      await locks.start();
      try {
        for (const nat of nats) nat.drop();
        return await Promise.all(keys.map(async (key) => (await locks.tryAcquire(key))?.isHeld()));
      } finally {
        await locks.stop();
      }
    };

    it('are replaced within a call with wait: 0 if they lead to the master that Sentinel names', async () => {
      const server = await startRedisServer();
      const nat = await startTcpProxy(server.port);
      const sentinel = await ScriptedSentinel.start(nat.port);
      try {
        const options = library.sentinel({ sentinels: [{ host: '127.0.0.1', port: sentinel.port }], name: 'locks' });
        expect(await take(options, [nat], ['k'])).toEqual([true]);
      } finally {
        await sentinel.stop();
        await nat.close();
        await server.stop();
      }
    });

    it('are replaced within calls with wait: 0 if they lead to the masters of a Cluster', async () => {
      const cluster = await startRedisCluster();
      const nats = await Promise.all(cluster.addresses.map(({ port }) => startTcpProxy(port)));
      try {
        const seen = nats.map(({ port }) => ({ host: '127.0.0.1', port }));
        const natMap = Object.fromEntries(
          cluster.addresses.map(({ host, port }, index) => [`${host}:${port}`, seen[index] ?? { host, port }]),
        );
        expect(await take(library.cluster(seen, { natMap }), nats, KEYS)).toEqual(KEYS.map(() => true));
      } finally {
        await Promise.all(nats.map((nat) => nat.close()));
        await cluster.stop();
      }
    }, 60_000);
  },
);

it('connections of both members of a combined provider are replaced within a call with wait: 0', async () => {
  const servers = await Promise.all([startRedisServer(), startRedisServer()]);
  const nats = await Promise.all(servers.map(({ port }) => startTcpProxy(port)));
  const [one, two] = nats.map(
    ({ port }) => new RedisLockProvider({ url: `redis://127.0.0.1:${port}`, commandTimeout: 600 }),
  ) as [RedisLockProvider, RedisLockProvider];
  const both = new CombinedLockProvider({ providers: ['one', 'two'] });
  const locks = new LockManager({ providers: { one, two, both }, default: 'both', shutdownGrace: 0 });
  await locks.start();
  for (const nat of nats) nat.drop();
  expect((await locks.tryAcquire('k'))?.isHeld()).toBe(true);
  await locks.stop();
  await Promise.all(nats.map((nat) => nat.close()));
  await Promise.all(servers.map((server) => server.stop()));
});

/**
 * Returns in how many ms the OS probes each connection of this process to a port; Infinity for a connection that it
 * never probes.
 */
function keepAliveTimers(port: number): number[] {
  const hex = port.toString(16).toUpperCase().padStart(4, '0');
  const lines = readFileSync('/proc/net/tcp', 'utf8').split('\n').slice(1);
  return lines
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , remote, state]) => remote === `0100007F:${hex}` && state === '01')
    .map(([, , , , , timer = '']) => {
      const [kind, ticks = ''] = timer.split(':');
      return kind === '02' ? Number.parseInt(ticks, 16) * 10 : Infinity;
    });
}

describe('Redlock', () => {
  let quorum: Quorum;

  beforeAll(async () => {
    quorum = await startQuorum(3);
  });

  afterAll(() => quorum.stop());

  describe.each([IOREDIS, NODE_REDIS])('idle connections to nodes, with %s', (library) => {
    const start = async () => {
      const { wires, nodes } = await wiresTo(quorum, library);
      const provider = new RedlockLockProvider({ nodes, maxLease: '1m', commandTimeout: 1_200 });
      const locks = new LockManager({ providers: { redlock: provider }, shutdownGrace: 0 });
      await locks.start();
      const stop = async () => {
        await locks.stop();
        await Promise.all(wires.map((wire) => wire.close()));
      };
      return { locks, wires, stop };
    };

    it('are replaced within a call with wait: 0 after a NAT has dropped them', async () => {
      const { locks, wires, stop } = await start();
      for (const wire of wires) wire.drop();
      expect((await locks.tryAcquire('dropped'))?.isHeld()).toBe(true);
      await stop();
    });

    it('fail no call with wait: 0 after the servers have closed them', async () => {
      const { locks, stop } = await start();
      let isLost = false;
      locks.events.on('unavailable', () => (isLost = true));
      for (const admin of quorum.admins) await admin.call('client', 'KILL', 'TYPE', 'normal');
      await until(() => isLost, 'the loss is noticed');
      const taken = await Promise.all([1, 2, 3, 4, 5].map((each) => locks.tryAcquire(`ended${each}`)));
      expect(taken.map((lock) => lock?.isHeld())).toEqual(Array(5).fill(true));
      await stop();
    });
  });
});

const KINDS = [SqlVersionLockProvider, SqlRowLockProvider, SqlAdvisoryLockProvider];

describe.each<[string, () => Promise<SqlServer>]>([
  ['Postgres', startPostgres],
  ['MariaDB', startMySqlOrMariaDb],
])('idle connections to %s', (_, startServer) => {
  let server: SqlServer;
  let nat: TcpProxy;

  beforeAll(async () => {
    server = await startServer();
    nat = await startTcpProxy(server.port);
  }, 60_000);
  afterAll(async () => {
    await nat.close();
    await server.stop();
  });

  const urlThroughNat = () => server.url.replace(`:${server.port}`, `:${nat.port}`);

  it.each(KINDS)('are replaced within a call with wait: 0 after a NAT has dropped them: %p', async (Provider) => {
    const provider = new Provider({ url: urlThroughNat(), synchronize: true, commandTimeout: 1_200 });
    const locks = new LockManager({ providers: { sql: provider }, shutdownGrace: 0 });
    await locks.start();
    await locks.withLock('warm', () => undefined);
    nat.drop();
    expect(await locks.withLock('k', () => 'done', { wait: 0 })).toBe('done');
    await locks.stop();
  });

  itUnless(process.platform === 'linux' ? undefined : 'only Linux shows the timers of its sockets')(
    'are kept alive by the OS, as are those that wait for a lock, since they send nothing',
    async () => {
      const provider = new SqlRowLockProvider({ url: urlThroughNat(), synchronize: true });
      const locks = new LockManager({ providers: { sql: provider } });
      await locks.start();
      const held = await locks.acquire('a');
      const waiting = locks.acquire('a', { wait: '1m' });
      await until(() => {
        const timers = keepAliveTimers(nat.port);
        return timers.length >= 3 && timers.every((timer) => timer <= 10_000);
      }, 'all connections are kept alive');
      await held.release();
      await (await waiting).release();
      await locks.stop();
    },
  );
});
