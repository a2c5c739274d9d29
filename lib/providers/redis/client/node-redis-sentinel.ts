import { setTimeout } from 'node:timers/promises';
import {
  NodeRedisLinkConnection,
  destroy,
  hardened,
  type NodeRedisLink,
  type NodeRedis,
  type NodeRedisClient,
  type NodeRedisConnection,
  type NodeRedisOptions,
} from './node-redis.js';
import type { Random } from '../../../api/random.js';
import {
  type Address,
  backOff,
  type Connect,
  connectTimeoutFor,
  KEEP_ALIVE,
  nameOfAddress,
  natted,
  type NatMap,
} from './redis-connection.js';

/** The node-redis Sentinel client options that this package reads. */
export interface NodeRedisSentinelOptions {
  readonly name: string;
  readonly sentinelRootNodes: readonly Address[];
  readonly nodeClientOptions?: NodeRedisOptions | undefined;
  readonly sentinelClientOptions?: NodeRedisOptions | undefined;
  readonly nodeAddressMap?: NatMap | undefined;
  readonly RESP?: number | undefined;
}

/**
 * Makes connections to the master that Sentinel reports.
 *
 * node-redis's Sentinel client resends commands after a failover, so we only use its options and query the Sentinels
 * ourselves. Each link queries all of them in parallel and takes the first reply, because some may hang. The link stays
 * subscribed to them until it ends, because a master that was demoted while it hung still believes it is the master
 * when it wakes up.
 */
export function nodeRedisSentinel(
  library: NodeRedis,
  options: NodeRedisSentinelOptions,
  random: Random,
  timeout: number,
): Connect {
  const sentinels = new Sentinels(library, options, random, timeout);
  return () => new NodeRedisLinkConnection((link) => sentinels.open(link));
}

class Sentinels {
  /** The Sentinels that a Sentinel has reported, in addition to the ones in the options. */
  #others: readonly Address[] = [];
  readonly #node: NodeRedisClient;
  readonly #sentinel: NodeRedisClient;

  constructor(
    library: NodeRedis,
    private readonly options: NodeRedisSentinelOptions,
    private readonly random: Random,
    private readonly timeout: number,
  ) {
    const { RESP, nodeClientOptions, sentinelClientOptions } = options;
    this.#node = library.createClient({ RESP, ...nodeClientOptions });
    this.#sentinel = library.createClient({ ...sentinelClientOptions });
  }

  /** Connects the link to the master. */
  async open(link: NodeRedisLink): Promise<void> {
    const master = await this.#find(link);
    if (link.isOver) return;
    const socket = { ...this.options.nodeClientOptions?.socket, ...natted(master, this.options.nodeAddressMap) };
    const client = await link.open(() => this.#node.duplicate(hardened(socket, this.timeout, link)));
    const info = await client.sendCommand(['INFO', 'replication']).catch((error: unknown) => {
      // If INFO is denied, the first lock request reveals a replica.
      if (error instanceof Error && error.message.startsWith('NOPERM')) return '';
      throw error;
    });
    if (/^role:slave/m.test(String(info))) {
      throw new Error(`Sentinel reports ${nameOfAddress(master)} as the master, but that server is a replica.`);
    }
  }

  /** Finds the master. The link ends when a Sentinel announces another master. */
  async #find(link: NodeRedisLink): Promise<Address> {
    let master: Address | undefined;
    let cause: unknown;
    const findMaster = async (sentinel: Address): Promise<Address> => {
      const client = this.#sentinelAt(sentinel, link);
      client.on('error', (error) => {
        cause = error;
      });
      await client.connect();
      const { name } = this.options;
      // Subscribe before the query, so no failover in between is missed.
      await client.subscribe('+switch-master', (message) => {
        const [group, , , host = '', port] = message.split(' ');
        const next = { host, port: Number(port) };
        // A late message may announce the master we've already found.
        if (group !== name || (master && nameOfAddress(next) === nameOfAddress(master))) return;
        link.end(new Error(`Sentinel reports a failover: ${nameOfAddress(next)} is now the master.`));
      });
      const address = await client.sendCommand(['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name]);
      if (!Array.isArray(address)) throw new Error(`A Sentinel does not know a master named "${name}".`);
      this.#others = othersIn(await client.sendCommand(['SENTINEL', 'SENTINELS', name]).catch(() => []));
      return { host: String(address[0]), port: Number(address[1]) };
    };
    const known = new Map(
      [...this.options.sentinelRootNodes, ...this.#others].map((each) => [nameOfAddress(each), each]),
    );
    const within = connectTimeoutFor(this.timeout);
    const late = setTimeout(within, undefined, { ref: false, signal: link.signal }).then(() => {
      throw new Error(`No Sentinel responded within ${within} ms.`, { cause });
    });
    // Also rejects when the link ends.
    late.catch(() => undefined);
    try {
      master = await Promise.race([late, Promise.any([...known.values()].map(findMaster))]);
      return master;
    } catch (error) {
      throw error instanceof AggregateError ? error.errors[0] : error;
    }
  }

  #sentinelAt(address: Address, link: NodeRedisLink): NodeRedisConnection {
    const client = this.#sentinel.duplicate({
      // RESP 3 allows commands on a subscribed connection.
      RESP: 3,
      maintNotifications: 'disabled',
      disableClientInfo: true,
      socket: {
        ...this.options.sentinelClientOptions?.socket,
        ...natted(address, this.options.nodeAddressMap),
        connectTimeout: connectTimeoutFor(this.timeout),
        keepAlive: true,
        keepAliveInitialDelay: KEEP_ALIVE,
        socketTimeout: undefined,
        // The client subscribes again automatically.
        reconnectStrategy: (times: number) => backOff(this.random, times),
        signal: link.signal,
      },
    });
    link.signal.addEventListener('abort', () => {
      destroy(client);
    });
    return client;
  }
}

/** Reads the reply to `SENTINEL SENTINELS`. */
function othersIn(reply: unknown): Address[] {
  if (!Array.isArray(reply)) return [];
  return (reply as { ip?: unknown; port?: unknown }[]).map(({ ip, port }) => ({
    host: String(ip),
    port: Number(port),
  }));
}
