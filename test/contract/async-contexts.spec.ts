import { AsyncLocalStorage, createHook } from 'node:async_hooks';
import { Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import { type LeaderTerm, LockService, RunAsLeader } from '../../lib/index.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { hashSlotOf } from '../../lib/providers/redis/cluster-servers.js';
import { BUCKETS } from '../../lib/providers/redis/key-layout.js';
import { MemcachedLockProvider } from '../../lib/providers/memcached/index.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { close, start } from '../nest/apps.js';
import { IOREDIS, NODE_REDIS } from '../redis/client-libraries.js';
import { startQuorum, wiresTo } from '../redlock/quorum.js';
import { type MemcachedServer, startMemcached } from '../servers/memcached-server.mjs';
import { type ClusterNode, outrank, startRedisCluster } from '../servers/redis-cluster.js';
import { startRedisSentinels } from '../servers/redis-sentinels.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { type SqlServer, startMySqlOrMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { until } from '../until.js';

const context = new AsyncLocalStorage<string>();

/** The async contexts in which TCP connections are opened, as instrumentation would see them. */
const connecting: (string | undefined)[] = [];
const hook = createHook({
  init: (_, type) => {
    if (type === 'TCPCONNECTWRAP') connecting.push(context.getStore());
  },
});

type Servers = readonly [RedisServer, MemcachedServer, ZooKeeperServer, SqlServer, SqlServer];
let servers: Servers;
const wires: TcpProxy[] = [];

beforeAll(async () => {
  servers = await Promise.all([
    startRedisServer(),
    startMemcached(),
    startZooKeeper(),
    startPostgres(),
    startMySqlOrMariaDb(),
  ]);
}, 120_000);
afterAll(async () => {
  await Promise.all(servers.map((server) => server.stop()));
});
beforeEach(() => {
  connecting.length = 0;
  hook.enable();
});
afterEach(async () => {
  hook.disable();
  await Promise.all(wires.splice(0).map((each) => each.close()));
});

const REDIS = 0;
const MEMCACHED = 1;
const ZOOKEEPER = 2;
const POSTGRES = 3;
const MYSQL = 4;

function throughWire(address: string): string {
  const url = new URL(address);
  url.port = String(wires[0]!.port);
  return url.toString();
}

const sql = (server: typeof POSTGRES | typeof MYSQL) => ({ url: throughWire(servers[server].url), synchronize: true });

const PROVIDERS: readonly [name: string, server: keyof Servers & number, create: () => LockProvider][] = [
  ['redis with ioredis', REDIS, () => new RedisLockProvider(IOREDIS.server(throughWire(servers[REDIS].url)))],
  ['redis with node-redis', REDIS, () => new RedisLockProvider(NODE_REDIS.server(throughWire(servers[REDIS].url)))],
  ['memcached', MEMCACHED, () => new MemcachedLockProvider({ server: `127.0.0.1:${wires[0]!.port}` })],
  ['zookeeper', ZOOKEEPER, () => new ZooKeeperLockProvider({ connectString: `127.0.0.1:${wires[0]!.port}` })],
  ['version locks on Postgres', POSTGRES, () => new SqlVersionLockProvider(sql(POSTGRES))],
  ['version locks on MySQL', MYSQL, () => new SqlVersionLockProvider(sql(MYSQL))],
  ['advisory locks on Postgres', POSTGRES, () => new SqlAdvisoryLockProvider(sql(POSTGRES))],
  ['advisory locks on MySQL', MYSQL, () => new SqlAdvisoryLockProvider(sql(MYSQL))],
  ['row locks on Postgres', POSTGRES, () => new SqlRowLockProvider(sql(POSTGRES))],
  ['row locks on MySQL', MYSQL, () => new SqlRowLockProvider(sql(MYSQL))],
];

/** Wraps a provider to record the async context of each renewal. */
function watched(provider: LockProvider) {
  const renewing: (string | undefined)[] = [];
  const create = provider.createBackend.bind(provider);
  let usesLeases = false;
  provider.createBackend = (parts) => {
    const backend = create(parts);
    usesLeases = backend.capabilities.lease !== 'session';
    const renew = backend.renew.bind(backend);
    backend.renew = (...request) => {
      renewing.push(context.getStore());
      return renew(...request);
    };
    return backend;
  };
  return { renewing, usesLeases: () => usesLeases };
}

@Injectable()
class Leader {
  readonly leading: (string | undefined)[] = [];

  @RunAsLeader('leader')
  async lead({ signal }: LeaderTerm): Promise<void> {
    this.leading.push(context.getStore());
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
  }
}

/** Returns false if the work fails, which is allowed while the connection is down. */
async function tried(work: () => Promise<unknown>): Promise<boolean> {
  return work().then(
    () => true,
    () => false,
  );
}

/** @param outage Breaks all connections, and runs its argument before new ones are allowed. */
async function staysDetached(provider: LockProvider, outage: (meanwhile: () => Promise<unknown>) => Promise<unknown>) {
  const { renewing, usesLeases } = watched(provider);
  const app = await context.run('boot', () => start({ providers: [Leader] }, { provider }));
  const { leading } = app.get(Leader);
  const locks = app.get(LockService);
  await until(() => leading.length > 0, 'a leader was elected');
  const lock = await context.run('call', () => locks.acquire('a', usesLeases() ? { lease: '3s' } : {}));
  await until(() => !usesLeases() || renewing.length > 0, 'the watchdog renewed the lease');

  const before = connecting.length;
  expect(before).toBeGreaterThan(0);
  const call = () => tried(() => locks.isLocked('a'));
  await outage(() => context.run('call', call));
  await context.run('call', async () => {
    await until(async () => (await call()) || !usesLeases(), 'a call succeeded again');
    await tried(() => lock.release());
    await until(() => tried(() => locks.withLock('b', () => undefined, { wait: 0 })), 'a lock was granted again');
  });
  expect(connecting.length).toBeGreaterThan(before);
  expect(new Set([...connecting, ...leading, ...renewing])).toEqual(new Set([undefined]));
  await close(app);
}

async function cutOff(meanwhile: () => Promise<unknown>): Promise<void> {
  for (const wire of wires) wire.refuse();
  await meanwhile();
  for (const wire of wires) wire.admit();
}

describe('the async context of a boot or a call', () => {
  it.each(PROVIDERS)('does not leak into work that outlives it: %s', async (_, server, create) => {
    wires.push(await startTcpProxy(servers[server]!.port));
    await staysDetached(create(), cutOff);
  });

  it.each([IOREDIS, NODE_REDIS])('does not leak into work that outlives it: redlock with %s', async (library) => {
    const quorum = await startQuorum(3);
    try {
      const own = await wiresTo(quorum, library);
      wires.push(...own.wires);
      await staysDetached(new RedlockLockProvider({ nodes: own.nodes, maxLease: '1m' }), cutOff);
    } finally {
      await quorum.stop();
    }
  });

  it.each([IOREDIS, NODE_REDIS])(
    'does not leak into work that outlives it: Redis Sentinel failover with %s',
    async (library) => {
      const redis = await startRedisSentinels();
      const [sentinel, master] = [redis.sentinels[0]!, redis.master].map(({ port }) => new Redis({ port }));
      try {
        await staysDetached(new RedisLockProvider(library.sentinel(redis.options)), async (meanwhile) => {
          // Sentinel breaks the connections to the old master once it has become a replica.
          await sentinel!.call('SENTINEL', ['FAILOVER', redis.options.name]);
          await meanwhile();
          await until(async () => (await master!.role())[0] === 'slave', 'the old master is a replica');
        });
      } finally {
        sentinel!.disconnect();
        master!.disconnect();
        await redis.stop();
      }
    },
    120_000,
  );

  it.each([IOREDIS, NODE_REDIS])(
    'does not leak into connections to a new Redis Cluster node: %s',
    async (library) => {
      const cluster = await startRedisCluster();
      const [first, , last] = cluster.masters as [ClusterNode, ClusterNode, ClusterNode];
      const slots = Array.from({ length: BUCKETS }, (_, bucket) => String(hashSlotOf(String(bucket))));
      const give = async (to: ClusterNode) => {
        await outrank(to, cluster);
        for (const { admin } of [to, ...cluster.masters]) {
          for (const slot of slots) await admin.call('CLUSTER', ['SETSLOT', slot, 'NODE', to.id]);
        }
      };
      try {
        await give(first);
        const provider = new RedisLockProvider(library.cluster(cluster.addresses));
        const app = await context.run('boot', () => start({}, { provider }));
        const before = connecting.length;
        // A slot that holds keys can't be moved. The backend writes its instance's name, but it has none here.
        await until(async () => {
          await first.admin.flushall();
          return tried(() => give(last));
        }, 'all slots moved to another master');
        await context.run('call', () => app.get(LockService).isLocked('a'));
        expect(connecting.length).toBeGreaterThan(before);
        expect(new Set(connecting)).toEqual(new Set([undefined]));
        await close(app);
      } finally {
        await cluster.stop();
      }
    },
    60_000,
  );
});
