import { setTimeout as sleep } from 'node:timers/promises';
import { load, managed } from './lock-manager.mjs';
import { CLIENT_FAULTS } from './client-faults.mjs';

const LEASE = 800;
const STEP_TIMEOUT = 10_000;

export const title = 'redis, Cluster of three masters with a replica each';
/** A failover takes seconds. */
export const recovery = 15_000;
export const lifetime = LEASE;
/** On reconnect, or at the deadline: docs/how-it-works/redis.md, "Failover". */
export const noticedWithin = LEASE;
export const fair = 'cohorts';
/** A restarted master refuses every command for 2 s (CLUSTER_WRITABLE_DELAY), and waiters retry within one second. */
export const settle = 3_000;
export const faults = [
  ...CLIENT_FAULTS,
  'connections dropped',
  ...['server paused', 'server paused in a handoff', 'server restarted', 'failover', 'slot moved', 'slot migrating'],
  ...['CLIENT KILL', 'CLIENT PAUSE', 'SCRIPT FLUSH'],
];
/**
 * Replication is asynchronous, so a promoted replica may lack the latest locks. A long pause also causes a promotion.
 */
export const allows = Object.fromEntries(
  ['failover', 'server paused', 'server paused in a handoff', 'server restarted'].map((name) => [name, ['overlap']]),
);
export const excuse = 'The promoted replica lacks the lock. The holder notices when it connects to it';

export async function startBackend() {
  const { startRedisCluster } = await import('../../test/servers/redis-cluster.ts');
  const { lockKeys } = await import('./redis-node.mjs');
  const { hashSlotOf } = await import('../../lib/providers/redis/cluster-servers.ts');
  const { KeyLayout } = await import('../../lib/providers/redis/key-layout.ts');
  const layout = new KeyLayout('lock');
  const slotOf = (key) => hashSlotOf(String(layout.bucketIn(layout.lockOf(key))));
  const cluster = await startRedisCluster({ replicas: 1, args: ['--appendonly', 'yes', '--appendfsync', 'everysec'] });
  const nodes = [...cluster.masters, ...cluster.replicas];
  const servers = nodes.map(({ server, admin }) => ({
    admin,
    port: server.port,
    url: server.url,
    signal: (name) => server.signal(name),
    crash: () => server.crash(),
    connections: async () => (await admin.client('LIST')).trim().split('\n').length,
    stored: () => admin.dbsize(),
  }));
  /** The masters with their slots, according to any node that responds. */
  const ranges = async () => {
    const rows = await Promise.any(nodes.map(({ admin }) => admin.cluster('SLOTS')));
    return rows.map(([from, to, [, port]]) => ({
      from,
      to,
      node: nodes.find(({ server }) => server.port === port),
    }));
  };
  const masterOf = async (slot) => (await ranges()).find(({ from, to }) => slot >= from && slot <= to).node;
  const remainingLocks = async () => {
    const masters = new Set((await ranges()).map(({ node }) => node));
    return lockKeys(...[...masters].map(({ admin }) => admin));
  };
  return {
    servers,
    /** The master of one of the keys. */
    async master() {
      const { server } = await masterOf(slotOf('a'));
      return servers.find(({ port }) => port === server.port);
    },
    /** Moves a key's slot to another master, in the steps of an operator's tool. Takes about `duration` ms. */
    async moveSlot(random, { key = random.pick(['a', 'b', 'c']), duration = 0 } = {}) {
      const slot = slotOf(key);
      const from = await masterOf(slot);
      const to = random.pick((await ranges()).map(({ node }) => node).filter((node) => node !== from));
      const set = ({ admin }, ...rest) => retried(() => admin.cluster('SETSLOT', slot, ...rest));
      await set(to, 'IMPORTING', from.id);
      await set(from, 'MIGRATING', to.id);
      const pause = duration / (1 + (await from.admin.cluster('COUNTKEYSINSLOT', slot)));
      await sleep(pause);
      for (let keys; (keys = await from.admin.cluster('GETKEYSINSLOT', slot, 1)).length > 0;) {
        await retried(() => from.admin.migrate('127.0.0.1', to.server.port, '', 0, 5_000, 'KEYS', ...keys));
        await sleep(pause);
      }
      for (const node of new Set([to, from, ...(await ranges()).map(({ node: each }) => each)]))
        await set(node, 'NODE', to.id);
    },
    remainingLocks,
    stop: () => cluster.stop(),
  };
}

/** Retries, because a node that was restarted or has lost its master refuses commands for some time. */
async function retried(act) {
  for (const until = performance.now() + STEP_TIMEOUT; ; await sleep(50)) {
    try {
      return await act();
    } catch (error) {
      if (performance.now() > until) throw error;
    }
  }
}

export async function connect({ library, ports, realPorts }) {
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const proxies = ports.map((port) => ({ host: '127.0.0.1', port }));
  // Nodes announce each other's real addresses, but each worker connects through its own proxies.
  const natMap = Object.fromEntries(realPorts.map((port, index) => [`127.0.0.1:${port}`, proxies[index]]));
  const provider = new RedisLockProvider({ cluster: proxies, options: { natMap }, commandTimeout: 500 });
  return managed({ library, provider, options: { lease: LEASE }, lifetime: LEASE });
}
