import { setTimeout as sleep } from 'node:timers/promises';
import { load, managed } from './lock-manager.mjs';

const LEASE = 800;
const STEP_WITHIN = 10_000;

export const title = 'redis, Cluster of three masters with a replica each';
/** A failover takes seconds: docs/providers/redis.md. */
export const recovery = 15_000;
export const lifetime = LEASE;
/** When it is connected again, or at the deadline: docs/providers/redis.md. */
export const toldWithin = LEASE;
export const fair = true;
/** A master that was restarted refuses everything for 2 s (CLUSTER_WRITABLE_DELAY), and is asked again within a second. */
export const settle = 3_000;
export const nemeses = [
  ...['worker killed', 'worker paused', 'event loop blocked', 'client clock stepped'],
  ...['wire delayed', 'requests lost', 'replies lost', 'wire half-open', 'wire reset', 'connections refused'],
  ...['server paused', 'server restarted', 'fail-over', 'slot moved'],
  ...['CLIENT KILL', 'CLIENT PAUSE', 'SCRIPT FLUSH'],
];
/** Replication is asynchronous: the promoted replica may not know the last locks. One is promoted also when a pause lasts for too long. */
export const allows = { 'fail-over': ['overlap'], 'server paused': ['overlap'], 'server restarted': ['overlap'] };

export async function startBackend() {
  const { startRedisCluster } = await import('../../test/servers/redis-cluster.ts');
  const { hashSlotOf } = await import('../../lib/providers/redis/cluster/hash-slot.ts');
  const { KeyLayout } = await import('../../lib/providers/redis/key-layout.ts');
  const layout = new KeyLayout('lock');
  const slotOf = (key) => hashSlotOf(String(layout.bucketIn(layout.lockOf(key))));
  const cluster = await startRedisCluster({ replicas: 1, args: ['--appendonly', 'yes', '--appendfsync', 'everysec'] });
  const nodes = [...cluster.masters, ...cluster.replicas];
  const servers = nodes.map(({ server, admin }) => ({
    admin,
    port: server.port,
    signal: (name) => server.signal(name),
    crash: () => server.crash(),
    connections: async () => (await admin.client('LIST')).trim().split('\n').length,
    stored: () => admin.dbsize(),
  }));
  /** The masters with their slots, as any node that answers knows them. */
  const ranges = async () => {
    const rows = await Promise.any(nodes.map(({ admin }) => admin.cluster('SLOTS')));
    return rows.map(([from, to, [, port]]) => ({
      from,
      to,
      node: nodes.find(({ server }) => server.port === port),
    }));
  };
  const masterOf = async (slot) => (await ranges()).find(({ from, to }) => slot >= from && slot <= to).node;
  const names = async () => {
    const masters = new Set((await ranges()).map(({ node }) => node));
    return (await Promise.all([...masters].map(({ admin }) => admin.keys('lock:*')))).flat();
  };
  return {
    servers,
    /** Of one of the keys. */
    async master() {
      const { server } = await masterOf(slotOf('a'));
      return servers.find(({ port }) => port === server.port);
    },
    /** Moves all that is in the slot of a key to another master, in steps as an operator's tool does. */
    async moveSlot(random) {
      const slot = slotOf(random.pick(['a', 'b', 'c']));
      const from = await masterOf(slot);
      const to = random.pick((await ranges()).map(({ node }) => node).filter((node) => node !== from));
      const set = ({ admin }, ...rest) => patiently(() => admin.cluster('SETSLOT', slot, ...rest));
      await set(to, 'IMPORTING', from.id);
      await set(from, 'MIGRATING', to.id);
      for (let keys; (keys = await from.admin.cluster('GETKEYSINSLOT', slot, 1)).length > 0;) {
        await patiently(() => from.admin.migrate('127.0.0.1', to.server.port, '', 0, 5_000, 'KEYS', ...keys));
      }
      for (const node of new Set([to, from, ...(await ranges()).map(({ node: each }) => each)]))
        await set(node, 'NODE', to.id);
    },
    leftovers: async () => (await names()).filter((name) => /^lock:\{\d+\}:[^}]*$|\}q$/.test(name)),
    stop: () => cluster.stop(),
  };
}

/** A node that was restarted, or has lost its master, takes nothing for some time. */
async function patiently(act) {
  for (const until = performance.now() + STEP_WITHIN; ; await sleep(50)) {
    try {
      return await act();
    } catch (error) {
      if (performance.now() > until) throw error;
    }
  }
}

export async function connect({ library, ports, realPorts }) {
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const wires = ports.map((port) => ({ host: '127.0.0.1', port }));
  // Nodes announce each other's real addresses; each worker uses its own wires.
  const natMap = Object.fromEntries(realPorts.map((port, index) => [`127.0.0.1:${port}`, wires[index]]));
  const provider = new RedisLockProvider({ cluster: wires, options: { natMap }, commandTimeout: 500 });
  return managed({ library, provider, options: { lease: LEASE }, lifetime: LEASE });
}
