import { setTimeout as sleep } from 'node:timers/promises';
import { load, managed } from './lock-manager.mjs';
import { CLIENT_FAULTS } from './client-faults.mjs';

const SESSION = 2_000;
/** Long after the last write, each server has applied what the others have. In ms. */
const AGREED_WITHIN = 3_000;
const LOCK_NODE = /\/lock\/\S+/g;

export const title = 'zookeeper, three servers';
/** An election, and then the end of a session. */
export const recovery = SESSION + 8_000;
/** Without another write, a lock is valid for two thirds of the session timeout. */
export const lifetime = Math.ceil((SESSION * 2) / 3);
/** Each process has one place in the queue, so its next caller is queued behind the callers of other processes. */
export const fair = 'processes';
/** Until the client has reconnected and its session continues. */
export const settle = 3_000;
export const faults = [
  ...CLIENT_FAULTS,
  ...['server paused', 'server paused in a handoff', 'server restarted', 'leader killed', 'leader cut off'],
];
/** docs/providers/zookeeper.md: a quorum keeps its data under all of these. */
export const allows = {};

export async function startBackend() {
  const { startEnsemble } = await import('../../test/servers/zookeeper-ensemble.ts');
  const ensemble = await startEnsemble();
  const servers = ensemble.servers.map((server) => ({
    port: server.port,
    signal: (name) => server.signal(name),
    async crash() {
      await server.kill();
      await server.restart();
    },
    connections: async () => Number(/num_alive_connections\s+(\d+)/.exec(await server.ask('mntr'))?.[1] ?? 0),
    stored: async () => Number(/znode_count\s+(\d+)/.exec(await server.ask('mntr'))?.[1] ?? 0),
  }));
  return {
    ...{ servers, ensemble },
    remainingLocks: () => lockNodes(ensemble),
    disagreement: () => disagreement(ensemble.servers),
    stop: () => ensemble.stop(),
  };
}

export async function connect({ library, ports }) {
  const { ZooKeeperLockProvider } = await load(library, 'providers/zookeeper/index.js');
  const connectString = ports.map((port) => `127.0.0.1:${port}`).join(',');
  const provider = new ZooKeeperLockProvider({ connectString, sessionTimeout: SESSION });
  return managed({ library, provider, lifetime });
}

async function lockNodes({ connectString }) {
  const { ZooKeeperAdmin } = await import('../../test/zookeeper/zookeeper-admin.ts');
  const admin = await ZooKeeperAdmin.connect(connectString);
  const nodes = await admin.tree('/lock');
  admin.client.close();
  return nodes.filter((path) => path.includes('_c_'));
}

/** The lock nodes that some servers have and others lack, as each server reports, while none are created or removed. */
async function disagreement(servers) {
  for (const until = performance.now() + AGREED_WITHIN; ; await sleep(100)) {
    const trees = await Promise.all(
      servers.map(async (server) => new Set((await server.ask('dump')).match(LOCK_NODE))),
    );
    const having = (path) => trees.flatMap((tree, index) => (tree.has(path) ? [index + 1] : []));
    const paths = new Set(trees.flatMap((tree) => [...tree]));
    const odd = [...paths].filter((path) => having(path).length < servers.length);
    if (odd.length === 0) return undefined;
    if (performance.now() < until) continue;
    return odd.map((path) => `${path} is on ${having(path).join(' and ')} of ${servers.length} servers`);
  }
}
