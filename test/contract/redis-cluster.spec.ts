import { Cluster } from 'ioredis';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { type Credentials, IOREDIS } from '../redis/client-libraries.js';
import { backendOf } from '../redis/seam.js';
import { type RedisCluster, startRedisCluster } from '../servers/redis-cluster.js';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';

let cluster: RedisCluster;
let admin: Cluster;
// Each provider's backend has its own proxy to each master, which can be cut.
const wires = new Map<LockProvider, TcpProxy[]>();
// Each provider has its own user on each master, whose permissions can be revoked.
const users = new Map<LockProvider, string>();
const allow = (user: string | undefined, ...rules: string[]) =>
  Promise.all(cluster.masters.map((node) => node.admin.call('ACL', 'SETUSER', user ?? '', ...rules)));

beforeAll(async () => {
  // No case waits for a failover, and a node slowed down by a busy machine must not count as down.
  cluster = await startRedisCluster({ nodeTimeout: 30_000 });
  admin = new Cluster(cluster.addresses);
});
afterAll(async () => {
  await Promise.all([...wires.values()].flat().map((wire) => wire.close()));
  admin.disconnect();
  await cluster.stop();
});

type Nodes = readonly { readonly host: string; readonly port: number }[];
type NatMap = Record<string, Nodes[number]>;

const LIBRARIES = {
  ioredis: (nodes: Nodes, natMap: NatMap, credentials: Credentials) => IOREDIS.cluster(nodes, { natMap, credentials }),
  // As options, which node-redis uses as its `defaults`. Creating a client per map would recompile all its classes, at
  // half of the CPU time.
  'node-redis': (nodes: Nodes, natMap: NatMap, credentials: Credentials) => ({
    cluster: nodes,
    options: { defaults: credentials, nodeAddressMap: natMap },
  }),
};

for (const [library, clusterBy] of Object.entries(LIBRARIES))
  describeLockProvider(`redis, on a Cluster, with ${library}`, {
    capabilities: backendOf({ url: 'redis://nowhere' }).capabilities,
    // Each provider has connections and proxies to three masters, all in one event loop. More concurrent cases would
    // delay each other.
    concurrency: 4,
    create: async () => {
      const own = await Promise.all(cluster.addresses.map(({ port }) => startTcpProxy(port)));
      const natMap = Object.fromEntries(
        cluster.addresses.map(({ host, port }, index) => [`${host}:${port}`, { host, port: own[index]?.port ?? 0 }]),
      );
      const nodes = own.map(({ port }) => ({ host: '127.0.0.1', port }));
      const username = `kit-${own[0]?.port ?? 0}`;
      await allow(username, 'on', '>secret', '~*', '&*', '+@all');
      const connection = clusterBy(nodes, natMap, { username, password: 'secret' });
      const provider = new RedisLockProvider({ ...connection, commandTimeout: '10s' });
      wires.set(provider, own);
      users.set(provider, username);
      return provider;
    },
    faults: {
      revoke: async (namespace, key) => {
        await admin.del(new KeyLayout(namespace).lockOf(key));
      },
      cutOff: async (provider) =>
        wires.get(provider)?.forEach((wire) => {
          wire.refuse();
        }),
      silence: async (provider) =>
        wires.get(provider)?.forEach((wire) => {
          wire.freeze();
        }),
      refuse: (provider) => allow(users.get(provider), '-eval', '-evalsha'),
      restore: async (provider) => {
        await allow(users.get(provider), '+@all');
        for (const wire of wires.get(provider) ?? []) wire.heal();
      },
    },
    records: true,
    remainingLocks: async (namespace) => {
      const keys = await Promise.all(cluster.masters.map((node) => node.admin.keys(`${namespace}:*`)));
      // Counters are permanent, and instance names are kept for a day. Last-seen times expire after 10 s.
      return keys.flat().filter((key) => !/:\{\d+\}(seen|instance:[0-9a-f]{12})?$/.test(key)).length;
    },
  });
