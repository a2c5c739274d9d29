import { afterAll, beforeAll } from '@jest/globals';
import { Cluster } from 'ioredis';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { IOREDIS } from '../redis/client-libraries.js';
import { backendOf } from '../redis/seam.js';
import { type RedisCluster, startRedisCluster } from '../servers/redis-cluster.js';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';

let cluster: RedisCluster;
let admin: Cluster;
// The backend of each provider has wires of its own, one to each master, which can be cut.
const wires = new Map<LockProvider, TcpProxy[]>();

beforeAll(async () => {
  cluster = await startRedisCluster();
  admin = new Cluster(cluster.addresses);
}, 30_000);
afterAll(async () => {
  await Promise.all([...wires.values()].flat().map((wire) => wire.close()));
  admin.disconnect();
  await cluster.stop();
});

type Nodes = readonly { readonly host: string; readonly port: number }[];
type NatMap = Record<string, Nodes[number]>;

const LIBRARIES = {
  ioredis: (nodes: Nodes, natMap: NatMap) => IOREDIS.cluster(nodes, { natMap }),
  // As options, which are those of node-redis for their `defaults`: a client would make all its classes anew for each map, in half of the CPU time.
  'node-redis': (nodes: Nodes, natMap: NatMap) => ({
    cluster: nodes,
    options: { defaults: {}, nodeAddressMap: natMap },
  }),
};

for (const [library, clusterBy] of Object.entries(LIBRARIES))
  describeLockProvider(`redis, on a Cluster, by ${library}`, {
    capabilities: backendOf({ url: 'redis://nowhere' }).capabilities,
    create: async () => {
      const own = await Promise.all(cluster.addresses.map(({ port }) => startTcpProxy(port)));
      const natMap = Object.fromEntries(
        cluster.addresses.map(({ host, port }, index) => [`${host}:${port}`, { host, port: own[index]?.port ?? 0 }]),
      );
      const nodes = own.map(({ port }) => ({ host: '127.0.0.1', port }));
      const provider = new RedisLockProvider({ ...clusterBy(nodes, natMap), commandTimeout: '10s' });
      wires.set(provider, own);
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
      restore: async (provider) =>
        wires.get(provider)?.forEach((wire) => {
          wire.heal();
        }),
    },
    remainingLocks: async (namespace) => {
      const keys = await Promise.all(cluster.masters.map((node) => node.admin.keys(`${namespace}:*`)));
      // The counters are meant to stay, and names of instances for a day. When processes were last seen is forgotten after 10 s.
      return keys.flat().filter((key) => !/:\{\d+\}(seen|instance:[0-9a-f]{12})?$/.test(key)).length;
    },
  });
