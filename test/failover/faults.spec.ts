import { Redis } from 'ioredis';
import { DataSource } from 'typeorm';
import { LockManager } from '../../lib/core/lock-manager.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { FailoverBackend } from '../../lib/providers/failover/failover-backend.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { TypeOrmRowLockProvider } from '../../lib/providers/typeorm/index.js';
import { until } from '../redis/seam.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { type SqlServer, startMariaDb } from '../servers/sql-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { withIntervals } from './fleet-rig.js';

const PATIENT = 60_000;

interface Instance {
  readonly locks: LockManager;
  readonly main: FailoverBackend;
  readonly wire: TcpProxy;
  stop(): Promise<void>;
}

describe('Redis with MariaDB behind it, and the record on MariaDB', () => {
  let mariadb: SqlServer;
  let redis: RedisServer;
  let instances: Instance[];

  beforeAll(async () => {
    mariadb = await startMariaDb();
  }, 60_000);
  afterAll(() => mariadb.stop());

  const instance = async (namespace: string): Promise<Instance> => {
    const dataSource = await new DataSource({ type: 'mariadb', url: mariadb.url }).initialize();
    const wire = await startTcpProxy(redis.port);
    const locks = new LockManager({
      providers: {
        redis: new RedisLockProvider({ url: `redis://127.0.0.1:${wire.port}`, commandTimeout: '1s' }),
        mysql: new TypeOrmRowLockProvider({ dataSource, synchronize: true, fencing: true }),
        main: withIntervals(
          new FailoverLockProvider({ providers: ['redis', 'mysql'], casStore: 'mysql', window: '3s' }),
          {
            // A probe may take half of it: a slow provider must not count as one that is down.
            probeInterval: 3_000,
          },
        ),
      },
      default: 'main',
      namespace,
      shutdownGrace: 0,
    });
    await locks.start();
    const stop = async () => {
      await locks.stop();
      await dataSource.destroy();
      await wire.close();
    };
    return { locks, main: locks.admin.backend(FailoverBackend, 'main'), wire, stop };
  };

  /** The resource: the only judge. It knows of no locks but by their tokens. */
  const resource = () => {
    const seen = { writers: 0, most: 0, highest: 0n, stale: 0, writes: 0 };
    const loop = async ({ locks }: Instance, signal: AbortSignal) => {
      while (!signal.aborted) {
        const lock = await locks.acquire('stock', { wait: 1_000 }).catch(() => undefined);
        if (!lock) continue;
        seen.writers += 1;
        await new Promise((resolve) => setTimeout(resolve, 5));
        if (lock.isHeld()) {
          seen.most = Math.max(seen.most, seen.writers);
          seen.writes += 1;
          if ((lock.fencingToken ?? 0n) <= seen.highest) seen.stale += 1;
          seen.highest = lock.fencingToken ?? 0n;
        }
        seen.writers -= 1;
        await lock.release();
      }
    };
    return { seen, loop };
  };

  let runs = 0;
  beforeEach(async () => {
    redis = await startRedisServer();
    const namespace = `faults-${(runs += 1)}`;
    instances = await Promise.all([instance(namespace), instance(namespace), instance(namespace)]);
  }, 120_000);
  afterEach(async () => {
    await Promise.all(instances.map((each) => each.stop()));
    await redis.stop();
  }, 60_000);

  const active = () => instances.map(({ main }) => main.state.active);

  it.each<[string, () => void]>([
    ['cut off from all', () => instances.forEach(({ wire }) => wire.refuse())],
    ['frozen', () => redis.signal('SIGSTOP')],
  ])(
    'goes over to MariaDB when Redis is %s, and nobody writes behind another',
    async (_, harm) => {
      const { seen, loop } = resource();
      const end = new AbortController();
      const working = Promise.all(instances.map((each) => loop(each, end.signal)));
      await until(() => seen.writes > 20, 'they are at work', PATIENT);
      harm();
      await until(() => active().every((provider) => provider === 'mysql'), 'all are on MariaDB', PATIENT);
      const before = seen.writes;
      await until(() => seen.writes > before + 20, 'they are at work again', PATIENT);
      end.abort();
      await working;
      redis.signal('SIGCONT');
      expect(seen).toMatchObject({ most: 1, stale: 0 });
    },
    240_000,
  );

  it('goes over to MariaDB when Redis is out of memory, which renews what is held', async () => {
    const [one, two] = instances as [Instance, Instance];
    // So many, and so far apart, that one of them is renewed at any moment.
    for (let count = 0; count < 60; count += 1) {
      await Promise.all([one.locks.acquire(`held:${count}`), two.locks.acquire(`also:${count}`)]);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const admin = new Redis(redis.port);
    await admin.config('SET', 'maxmemory', '1');
    admin.disconnect();
    await expect(one.locks.acquire('new', { wait: 0 })).rejects.toThrow('OOM');
    await until(() => active().every((provider) => provider === 'mysql'), 'all are on MariaDB', PATIENT);
    await (await one.locks.acquire('new', { wait: '1m' })).release();
  }, 240_000);

  it('does not switch for one instance that alone cannot reach Redis', async () => {
    const [lonely, other] = instances as [Instance, Instance];
    lonely.wire.refuse();
    await until(() => lonely.main.state.providers['redis'] === 'down', 'it misses Redis', PATIENT);
    await expect(lonely.locks.acquire('k', { wait: 1_500 })).rejects.toThrow(LockUnavailableError);
    expect(active()).toEqual(['redis', 'redis', 'redis']);
    await (await other.locks.acquire('k', { wait: '1m' })).release();
  }, 150_000);
});
