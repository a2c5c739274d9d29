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
// The backend of each provider has wires of its own, one to each master, which can be cut.
const wires = new Map<LockProvider, TcpProxy[]>();
// And a user on each master, who can lose permissions.
const users = new Map<LockProvider, string>();
const allow = (user: string | undefined, ...rules: string[]) =>
  Promise.all(cluster.masters.map((node) => node.admin.call('ACL', 'SETUSER', user ?? '', ...rules)));

beforeAll(async () => {
  // No case waits for a failover, and a node that a busy machine keeps waiting must not count as down.
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
  // As options, which are those of node-redis for their `defaults`: a client would make all its classes anew for each map, in half of the CPU time.
  'node-redis': (nodes: Nodes, natMap: NatMap, credentials: Credentials) => ({
    cluster: nodes,
    options: { defaults: credentials, nodeAddressMap: natMap },
  }),
};

for (const [library, clusterBy] of Object.entries(LIBRARIES))
  describeLockProvider(`redis, on a Cluster, by ${library}`, {
    capabilities: backendOf({ url: 'redis://nowhere' }).capabilities,
    // Each provider has connections and wires to three masters, all in one event loop: more cases at a time would make each other late.
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
      // The counters are meant to stay, and names of instances for a day. When processes were last seen is forgotten after 10 s.
      return keys.flat().filter((key) => !/:\{\d+\}(seen|instance:[0-9a-f]{12})?$/.test(key)).length;
    },
  });
