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

/** A Redis Cluster of our own: three masters, each with a third of the slots, and any number of replicas for each. */
export interface RedisCluster {
  readonly masters: readonly ClusterNode[];
  readonly replicas: readonly ClusterNode[];
  /** Start nodes, as ioredis' `Cluster` takes them. */
  readonly addresses: { readonly host: string; readonly port: number }[];
  /** Lets nothing pass between this node and the others on their bus. Clients and replicas reach it. Only with `hasWiredBus`. */
  cutOff(node: ClusterNode): void;
  /** Ends `cutOff`. */
  join(): void;
  stop(): Promise<void>;
}

const SLOTS = 16_384;
const READY_WITHIN = 50_000;

/** @param hasWiredBus whether the nodes speak to each other through proxies, so that one can be cut off. Linux only: each has an address of its own. */
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
  // As `redis-cli --cluster create` does it, which needs seconds more.
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
      return until(isLinked, 'a replica of the Cluster finds its master', READY_WITHIN);
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
  /** On which the others call it. */
  readonly busPort: number;
  readonly bus: TcpProxy | undefined;
  /** The address from which it calls the others, if it has one of its own. */
  readonly source: string | undefined;
}

async function startNode(nodeTimeout: number, given: readonly string[], source?: string): Promise<StartedNode> {
  // Its default is the port + 10 000, which may be no port.
  const ownPort = await freePort();
  const bus = source === undefined ? undefined : await startTcpProxy(ownPort);
  const busPort = bus?.port ?? ownPort;
  const args = ['--cluster-enabled', 'yes', '--cluster-config-file', 'nodes.conf', '--cluster-port', String(ownPort)];
  if (source !== undefined) {
    // It listens on 127.0.0.1 alone. In protected mode it would refuse replicas that come from elsewhere.
    args.push('--bind-source-addr', source, '--cluster-announce-ip', '127.0.0.1', '--protected-mode', 'no');
    args.push('--cluster-announce-bus-port', String(busPort));
  }
  const server = await startRedisServer({
    args: [...args, '--cluster-node-timeout', String(nodeTimeout), '--repl-diskless-sync-delay', '0', ...given],
  });
  // ioredis waits 2 s by default for a server that is gone, with a timer that keeps the process alive.
  const admin = new Redis(server.url, { maxRetriesPerRequest: null, disconnectTimeout: 100 });
  admin.on('error', () => undefined);
  return { server, admin, busPort, bus, source, id: String(await admin.call('CLUSTER', ['MYID'])) };
}

/**
 * Gives a node the greatest epoch. Otherwise gossip takes a slot from it again that it was given by `SETSLOT`, when the old owner claims it with a
 * greater one.
 */
export async function outrank(node: ClusterNode, { masters }: Pick<RedisCluster, 'masters'>): Promise<void> {
  const others = masters.filter((each) => each !== node);
  await until(async () => {
    await node.admin.call('CLUSTER', ['BUMPEPOCH']);
    const [own = 0, ...epochs] = (await fieldOf([node, ...others], /cluster_my_epoch:(\d+)/)).map(Number);
    return epochs.every((epoch) => epoch < own);
  }, 'the node has the greatest epoch');
}

/** What each node says of itself in this field of `CLUSTER INFO`. */
function fieldOf(nodes: readonly ClusterNode[], field: RegExp): Promise<(string | undefined)[]> {
  return Promise.all(nodes.map(async ({ admin }) => field.exec(String(await admin.call('CLUSTER', ['INFO'])))?.[1]));
}

function untilAll(nodes: readonly ClusterNode[], field: RegExp, value: string): Promise<void> {
  const what = `each node of the Cluster says that ${field.source} is ${value}`;
  return until(async () => (await fieldOf(nodes, field)).every((found) => found === value), what, READY_WITHIN);
}
