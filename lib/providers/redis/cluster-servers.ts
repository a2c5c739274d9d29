import { setMaxListeners } from 'node:events';
import { detached } from '../../core/toolkit/detached.js';
import { pause } from '../../core/toolkit/timing.js';
import {
  type Address,
  type FindCluster,
  type KnownCluster,
  nameOfAddress,
  natted,
  type NatMap,
} from './client/redis-connection.js';
import { BUCKETS } from './key-layout.js';
import { RedisServer, type ServerSettings, type ServersListener } from './redis-server.js';
import { RedisServers, type Shard } from './redis-servers.js';
import type { Subscription } from './subscription.js';

/** How soon the map is read again while a slot is on its way, or a master does not answer: then less and less often, in ms. */
const LOOK_AGAIN = 50;
const LOOK_AT_LEAST = 1_000;

/** The errors of a server that has not run a script call because the keys are on another server, or not there yet. */
const ELSEWHERE = /^(MOVED|ASK|TRYAGAIN|CLUSTERDOWN) /;

/**
 * The masters of a Redis Cluster: connections to each that serves one of our buckets, and a batcher for each bucket.
 *
 * Commands do not go through the library's Cluster client. It sends a command again when its connection breaks (of ioredis:
 * `retryDelayOnFailover`, up to `maxRedirections` times), and keeps those for which it knows no node. After a failover, an ask whose request is over would
 * still be executed. Here a call is sent again only when the server has answered that it did not run it.
 *
 * While a slot migrates, its bucket waits. `ASK` is not followed: the script also touches keys that are not named
 * in the call (queue, readers), and the importing node would take one that has not arrived yet for missing, and create it again.
 */
export class ClusterServers extends RedisServers implements ServersListener {
  readonly #nodes = new Map<string, ClusterNode>();
  #find: FindCluster | undefined;
  /** Aborts when the backend closes. */
  readonly #closing = new AbortController();
  #cluster: KnownCluster | undefined;
  #refreshing: Promise<void> | undefined;
  #isWatching = false;
  #delay = LOOK_AGAIN;

  constructor(
    private readonly finder: () => Promise<FindCluster>,
    settings: ServerSettings,
    listener: ServersListener,
  ) {
    super(settings, listener, (shard, error, sentAt) => this.#redirect(shard, error, sentAt));
    // A pause for each call that was refused is no leak.
    setMaxListeners(0, this.#closing.signal);
  }

  protected get all(): readonly RedisServer[] {
    return Array.from(this.#nodes.values(), ({ server }) => server);
  }

  async connect(): Promise<void> {
    this.#find = await this.finder();
    try {
      await this.#refresh();
      if (this.#nodes.size === 0) throw new Error('No node of the Cluster reports its slots.');
      await Promise.all([...this.#nodes.values()].map(({ connected }) => connected));
    } catch (error) {
      this.#watch();
      throw error;
    }
  }

  override async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([this.#refreshing?.catch(() => undefined), super.close()]);
  }

  onUp(): void {
    this.listener.onUp();
  }

  onDown(cause: unknown): void {
    this.listener.onDown(cause);
    this.#delay = LOOK_AGAIN;
    this.#watch();
  }

  onListening(): void {
    this.listener.onListening();
  }

  onRefused(): void {
    this.#watch();
  }

  onMessage(message: string, channel: string, from: Subscription): void {
    const shard = this.shards.find((each) => each.channel === channel);
    // A message about a shard that another server has by now is not believed.
    if (shard?.server?.subscription === from) this.listener.onMessage(message, channel, from);
  }

  onNotice(notice: string, sentAt: number): void {
    this.listener.onNotice(notice, sentAt);
  }

  #redirect(shard: Shard, error: Error, sentAt: number): Promise<void> | undefined {
    if (!ELSEWHERE.test(error.message)) return undefined;
    if (this.#isClosed || this.settings.clock.now() - sentAt > this.settings.commandTimeout) return undefined;
    return this.#seek(shard, error.message.startsWith('CLUSTERDOWN '));
  }

  /**
   * Resolves when another server is known to have the bucket, or when it is time to ask the same one again.
   *
   * @param isCutOff whether its server has lost the majority of the Cluster, by its own account
   */
  async #seek(shard: Shard, isCutOff: boolean): Promise<void> {
    const before = shard.server;
    // A server that refuses is asked again until that takes too long.
    await this.#refresh(before, isCutOff).catch(() => undefined);
    if (shard.server === before) await this.#pause(LOOK_AGAIN);
    else
      await [...this.#nodes.values()].find(({ server }) => server === shard.server)?.connected.catch(() => undefined);
  }

  /** Looks for the masters until each has answered and is listened to. */
  #watch(): void {
    if (this.#isWatching) return;
    this.#isWatching = true;
    void (async () => {
      do {
        await this.#pause(this.#delay);
        this.#delay = Math.min(this.#delay * 2, LOOK_AT_LEAST);
        await this.#refresh().catch(() => undefined);
      } while (!this.#isClosed && !this.shards.every(isServed));
      this.#isWatching = false;
    })();
  }

  /**
   * Runs detached, because the connections to new masters outlive the call that was refused.
   *
   * @param refusing the server that has just refused a call, if one has
   */
  #refresh(refusing?: RedisServer, isCutOff = false): Promise<void> {
    this.#refreshing ??= detached(() => this.#readMap(refusing, isCutOff)).finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #readMap(refusing: RedisServer | undefined, isCutOff: boolean): Promise<void> {
    if (this.#isClosed) return;
    // The server that has just reported a slot elsewhere knows best. One that is cut off from the others names itself as the master of its
    // slots as long as the cut lasts, although its replica was promoted, so it is asked last.
    const rank = isCutOff ? 1 : -1;
    const rankOf = ({ server }: ClusterNode) => (server === refusing ? rank : 0);
    const nodes = [...this.#nodes.values()].sort((a, b) => rankOf(a) - rankOf(b));
    for (const { address, server } of nodes) {
      const reply = await server.commands.ask('cluster', 'SLOTS').catch(() => undefined);
      if (reply === undefined) continue;
      this.#apply(readSlotMap(reply, address, this.#cluster?.natMap));
      return;
    }
    if (this.#find === undefined) return;
    this.#cluster = await this.#find();
    this.#apply(readSlotMap(this.#cluster.slots, this.#cluster.asked, this.#cluster.natMap));
  }

  #apply(map: readonly (Address | undefined)[]): void {
    if (this.#isClosed) return;
    let hasMoved = false;
    for (const [index, shard] of this.shards.entries()) {
      const address = map[index];
      // No master serves it for now: the old one may come back to it.
      if (address === undefined) continue;
      const { server } = this.#nodeAt(address);
      if (shard.server === server) continue;
      if (shard.server !== undefined) hasMoved = true;
      shard.moveTo(server);
    }
    for (const [key, { server }] of this.#nodes) {
      const channels = this.shards.filter((shard) => shard.server === server).map(({ channel }) => channel);
      if (channels.length > 0) server.subscription.listenTo(channels);
      else {
        this.#nodes.delete(key);
        void server.close();
      }
    }
    // Holds are renewed where they are now before any request asks there. A new server reports by itself that it is up.
    if (hasMoved) this.listener.onUp();
  }

  #nodeAt(address: Address): ClusterNode {
    const key = nameOfAddress(address);
    const known = this.#nodes.get(key);
    if (known) return known;
    const cluster = this.#cluster;
    if (cluster === undefined) throw new Error('A node of the Cluster is named before one was found.');
    const server = new RedisServer(this.settings, () => cluster.connectTo(address), this);
    const connected = server.connect();
    connected.catch(() => {
      this.#watch();
    });
    const node = { address, server, connected };
    this.#nodes.set(key, node);
    return node;
  }

  get #isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  #pause(delay: number): Promise<void> {
    return pause(this.settings.clock, delay, this.#closing.signal, true);
  }
}

function isServed({ batcher, server, channel }: Shard): boolean {
  return batcher.isReachable && server?.subscription.listensTo(channel) === true;
}

interface ClusterNode {
  readonly address: Address;
  readonly server: RedisServer;
  readonly connected: Promise<void>;
}

const SLOTS = 16_384;
const BUCKET_SLOTS = Array.from({ length: BUCKETS }, (_, bucket) => hashSlotOf(String(bucket)));

/**
 * Reads the reply to `CLUSTER SLOTS`: the master of each shard, if any serves it.
 *
 * A node that does not know its own name leaves it out, which means the one under which it was asked.
 */
export function readSlotMap(reply: unknown, asked: Address, natMap?: NatMap): (Address | undefined)[] {
  const ranges = Array.isArray(reply) ? (reply as [number, number, [string | null, number]][]) : [];
  return BUCKET_SLOTS.map((slot) => {
    const range = ranges.find(([first, last]) => first <= slot && slot <= last);
    if (range === undefined) return undefined;
    const [host, port] = range[2];
    return natted({ host: host === null || host === '' ? asked.host : host, port }, natMap);
  });
}

/** The hash slot of a tag, as the specification of Redis Cluster has it: CRC16 (XMODEM) of the text in the braces. */
export function hashSlotOf(tag: string): number {
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return (crc & 0xffff) % SLOTS;
}
