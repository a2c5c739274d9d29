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
import { RedisServer, type ServerSettings } from './redis-server.js';
import { RedisServers, type ServersListener, type Shard } from './redis-servers.js';

/**
 * The pause in ms before the slot map is read again while a slot migrates or a master is down. It doubles each time, up
 * to the maximum.
 */
const REFRESH_DELAY = 50;
const MAX_REFRESH_DELAY = 1_000;

/** Errors from a server that didn't run a script call because the keys are on another server or haven't arrived yet. */
const ELSEWHERE = /^(MOVED|ASK|TRYAGAIN|CLUSTERDOWN) /;

/**
 * The masters of a Redis Cluster, with connections to each master that serves one of our buckets.
 *
 * Commands don't go through the library's Cluster client, because it resends a command when its connection breaks
 * (ioredis: `retryDelayOnFailover`, up to `maxRedirections` times), and queues commands if it doesn't know their node.
 * After a failover, it would still send an acquire whose request has ended. Here, a call is resent only if the server
 * reported that it didn't run.
 *
 * While a slot migrates, its bucket's calls wait. We don't follow `ASK`: the script also touches keys that the call
 * doesn't declare (queue, readers). If one of them has not arrived yet, the importing node would treat it as missing
 * and recreate it.
 */
export class ClusterServers extends RedisServers {
  /** By address. */
  readonly #masters = new Map<string, RedisServer>();
  #find: FindCluster | undefined;
  /** Aborts when the backend closes. */
  readonly #closing = new AbortController();
  #cluster: KnownCluster | undefined;
  #refreshing: Promise<void> | undefined;
  #isRefreshing = false;

  constructor(
    private readonly finder: () => Promise<FindCluster>,
    settings: ServerSettings,
    listener: ServersListener,
  ) {
    super(settings, listener);
    // Each rejected call may add a listener. This isn't a leak.
    setMaxListeners(0, this.#closing.signal);
  }

  protected get all(): readonly RedisServer[] {
    return [...this.#masters.values()];
  }

  async connect(): Promise<void> {
    this.#find = await this.finder();
    try {
      await this.#refresh();
      if (this.#masters.size === 0) throw new Error('No Cluster node reported its slots.');
      await Promise.all(this.all.map((server) => server.connect()));
    } catch (error) {
      this.#refreshUntilServed();
      throw error;
    }
  }

  override async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([this.#refreshing?.catch(() => undefined), super.close()]);
  }

  override onDown(cause: unknown): void {
    super.onDown(cause);
    this.#refreshUntilServed();
  }

  onRefused(): void {
    this.#refreshUntilServed();
  }

  override redirect(shard: Shard, error: Error, sentAt: number): Promise<void> | undefined {
    if (!ELSEWHERE.test(error.message)) return undefined;
    if (this.#isClosed || this.settings.clock.now() - sentAt > this.settings.commandTimeout) return undefined;
    return this.#findServer(shard, error.message.startsWith('CLUSTERDOWN '));
  }

  /**
   * Resolves when another server is known to have the bucket, or when it is time to try the same server again.
   *
   * @param lacksMajority whether the shard's server reported that it can't reach a majority of the Cluster
   */
  async #findServer(shard: Shard, lacksMajority: boolean): Promise<void> {
    const before = shard.server;
    // If the map can't be read, the caller retries until `commandTimeout` has passed.
    await this.#refresh(before, lacksMajority).catch(() => undefined);
    if (shard.server === before) await this.#pause(REFRESH_DELAY);
    else await shard.server?.connect().catch(() => undefined);
  }

  /** Rereads the slot map until we're connected and subscribed to every shard's master. */
  #refreshUntilServed(): void {
    if (this.#isRefreshing) return;
    this.#isRefreshing = true;
    void (async () => {
      let delay = REFRESH_DELAY;
      do {
        await this.#pause(delay);
        delay = Math.min(delay * 2, MAX_REFRESH_DELAY);
        await this.#refresh().catch(() => undefined);
      } while (!this.#isClosed && !this.shards.every(isServed));
      this.#isRefreshing = false;
    })();
  }

  /**
   * Runs detached, because connections to new masters outlive the call that triggered the refresh.
   *
   * @param refusing the server that has just rejected a call, if any
   */
  #refresh(refusing?: RedisServer, lacksMajority = false): Promise<void> {
    this.#refreshing ??= detached(() => this.#readMap(refusing, lacksMajority)).finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #readMap(refusing: RedisServer | undefined, lacksMajority: boolean): Promise<void> {
    if (this.#isClosed) return;
    // A server that has just reported a moved slot has the newest map, so it is queried first. A server that is cut off
    // from the others still reports itself as the master of its slots after its replica has been promoted, so it is
    // queried last.
    const rank = lacksMajority ? 1 : -1;
    const rankOf = (server: RedisServer) => (server === refusing ? rank : 0);
    for (const { address, commands } of this.all.toSorted((a, b) => rankOf(a) - rankOf(b))) {
      const reply = await commands.call('cluster', 'SLOTS').catch(() => undefined);
      if (reply === undefined) continue;
      this.#apply(readSlotMap(reply, address as Address, this.#cluster?.natMap));
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
      // No master currently serves the slot. Keep the old one, because it may come back.
      if (address === undefined) continue;
      const server = this.#masterAt(address);
      if (shard.server === server) continue;
      if (shard.server !== undefined) hasMoved = true;
      shard.moveTo(server);
    }
    for (const [key, server] of this.#masters) {
      const channels = this.shards.filter((shard) => shard.server === server).map(({ channel }) => channel);
      if (channels.length > 0) server.subscription.listenTo(channels);
      else {
        this.#masters.delete(key);
        void server.close();
      }
    }
    // Held locks must be renewed at their new server before requests are sent there. A newly connected server reports
    // `onUp` itself.
    if (hasMoved) this.onUp();
    // The node that reported the map may not know all masters yet.
    if (this.shards.some(({ server }) => server === undefined)) this.#refreshUntilServed();
  }

  #masterAt(address: Address): RedisServer {
    const key = nameOfAddress(address);
    const known = this.#masters.get(key);
    if (known) return known;
    const cluster = this.#cluster;
    if (cluster === undefined) throw new Error('Bug: the slot map was applied before a Cluster node was found.');
    const server = new RedisServer(this.settings, () => cluster.connectTo(address), this, address);
    server.connect().catch(() => {
      this.#refreshUntilServed();
    });
    this.#masters.set(key, server);
    return server;
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

const SLOTS = 16_384;
const BUCKET_SLOTS = Array.from({ length: BUCKETS }, (_, bucket) => hashSlotOf(String(bucket)));

/**
 * Reads the reply to `CLUSTER SLOTS`: the address of each shard's master, or `undefined` if no master serves it.
 *
 * A node that doesn't know its own host leaves it empty, so we use the host we queried.
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

/** The hash slot of a hash tag: CRC16 (XMODEM), according to the Redis Cluster specification. */
export function hashSlotOf(tag: string): number {
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return (crc & 0xffff) % SLOTS;
}
