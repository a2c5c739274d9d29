import { Redis } from 'ioredis';
import { until } from '../until.js';
import { type RedisServer, startRedisServer } from './redis-server.mjs';
import { freePort } from './server-process.mjs';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.js';

export interface ClusterNode {
  readonly server: RedisServer;
  readonly admin: Redis;
  readonly id: string;
}

/** A Redis Cluster of three masters, each with a third of the slots and any number of replicas. */
export interface RedisCluster {
  readonly masters: readonly ClusterNode[];
  readonly replicas: readonly ClusterNode[];
  /** Start nodes in the format of ioredis' `Cluster`. */
  readonly addresses: { readonly host: string; readonly port: number }[];
  /**
   * Partitions this node from the others on the cluster bus. Clients and replicas still reach it. Requires
   * `hasWiredBus`.
   */
  cutOff(node: ClusterNode): void;
  /** Ends the partition. */
  join(): void;
  stop(): Promise<void>;
}

const SLOTS = 16_384;
const READY_WITHIN = 50_000;

/**
 * @param hasWiredBus Whether the nodes communicate through proxies, so that one can be partitioned. Linux only, because
 * each node has its own loopback address.
 */
export async function startRedisCluster({
  replicas: copies = 0,
  nodeTimeout = 1_000,
  args = [] as readonly string[],
  hasWiredBus = false,
} = {}): Promise<RedisCluster> {
  const count = 3 * (1 + copies);
  const nodes = await Promise.all(
    Array.from({ length: count }, (_, index) =>
      startNode(nodeTimeout, args, hasWiredBus ? `127.0.0.${index + 2}` : undefined),
    ),
  );
  const masters = nodes.slice(0, 3);
  const replicas = nodes.slice(3);
  const [first] = masters as [StartedNode];
  // Like `redis-cli --cluster create`, which takes seconds longer.
  await Promise.all(masters.map(({ admin }, index) => admin.call('CLUSTER', ['SET-CONFIG-EPOCH', String(index + 1)])));
  await Promise.all(
    masters.map(({ admin }, index) => {
      const [from, to] = [index, index + 1].map((third) => Math.floor((third * SLOTS) / 3)) as [number, number];
      return admin.call('CLUSTER', ['ADDSLOTSRANGE', String(from), String(to - 1)]);
    }),
  );
  for (const { admin } of nodes.slice(1)) {
    await admin.call('CLUSTER', ['MEET', '127.0.0.1', String(first.server.port), String(first.busPort)]);
  }
  await untilAll(nodes, /cluster_known_nodes:(\d+)/, String(count));
  for (const [index, { admin }] of replicas.entries()) {
    const master = masters[index % 3] as StartedNode;
    await admin.call('CLUSTER', ['REPLICATE', master.id]);
  }
  await untilAll(nodes, /cluster_state:(\w+)/, 'ok');
  await Promise.all(
    replicas.map(({ admin }) => {
      const isLinked = async () => (await admin.info('replication')).includes('master_link_status:up');
      return until(isLinked, 'a Cluster replica connected to its master', READY_WITHIN);
    }),
  );
  return {
    masters,
    replicas,
    addresses: masters.map(({ server }) => ({ host: '127.0.0.1', port: server.port })),
    cutOff(node) {
      const { source } = node as StartedNode;
      for (const each of nodes) each.bus?.freeze(each === node ? undefined : source);
    },
    join() {
      for (const { bus } of nodes) bus?.thaw();
    },
    async stop() {
      for (const { admin } of nodes) admin.disconnect();
      await Promise.all(nodes.map(({ server }) => server.stop()));
      for (const { bus } of nodes) await bus?.close();
    },
  };
}

interface StartedNode extends ClusterNode {
  /** The port that other nodes connect to. */
  readonly busPort: number;
  readonly bus: TcpProxy | undefined;
  /** The address that this node connects from, if it has its own. */
  readonly source: string | undefined;
}

async function startNode(nodeTimeout: number, given: readonly string[], source?: string): Promise<StartedNode> {
  // The default is the port + 10,000, which may exceed the valid range.
  const ownPort = await freePort();
  const bus = source === undefined ? undefined : await startTcpProxy(ownPort);
  const busPort = bus?.port ?? ownPort;
  const args = ['--cluster-enabled', 'yes', '--cluster-config-file', 'nodes.conf', '--cluster-port', String(ownPort)];
  if (source !== undefined) {
    // The node listens only on 127.0.0.1. In protected mode, it would refuse replicas from other addresses.
    args.push('--bind-source-addr', source, '--cluster-announce-ip', '127.0.0.1', '--protected-mode', 'no');
    args.push('--cluster-announce-bus-port', String(busPort));
  }
  const server = await startRedisServer({
    args: [...args, '--cluster-node-timeout', String(nodeTimeout), '--repl-diskless-sync-delay', '0', ...given],
  });
  // By default, ioredis waits 2 s for a server that is gone, with a timer that keeps the process alive.
  const admin = new Redis(server.url, { maxRetriesPerRequest: null, disconnectTimeout: 100 });
  admin.on('error', () => undefined);
  return { server, admin, busPort, bus, source, id: String(await admin.call('CLUSTER', ['MYID'])) };
}

/**
 * Gives a node the greatest epoch. Otherwise, gossip reverts a slot assigned with `SETSLOT` when the old owner claims
 * it with a greater epoch.
 */
export async function outrank(node: ClusterNode, { masters }: Pick<RedisCluster, 'masters'>): Promise<void> {
  const others = masters.filter((each) => each !== node);
  await until(async () => {
    await node.admin.call('CLUSTER', ['BUMPEPOCH']);
    const [own = 0, ...epochs] = (await fieldOf([node, ...others], /cluster_my_epoch:(\d+)/)).map(Number);
    return epochs.every((epoch) => epoch < own);
  }, 'the node has the greatest epoch');
}

/** Returns this field of each node's `CLUSTER INFO`. */
function fieldOf(nodes: readonly ClusterNode[], field: RegExp): Promise<(string | undefined)[]> {
  return Promise.all(nodes.map(async ({ admin }) => field.exec(String(await admin.call('CLUSTER', ['INFO'])))?.[1]));
}

function untilAll(nodes: readonly ClusterNode[], field: RegExp, value: string): Promise<void> {
  const what = `each Cluster node reports that ${field.source} is ${value}`;
  return until(async () => (await fieldOf(nodes, field)).every((found) => found === value), what, READY_WITHIN);
}
