import { setMaxListeners } from 'node:events';
import { detached } from '../../../core/toolkit/detached.js';
import { pause } from '../../../core/toolkit/timing.js';
import { Batcher, type Operation } from '../client/batcher.js';
import type { Ask } from '../client/diagnostics.js';
import type { Address, FindCluster, KnownCluster } from '../client/redis-connection.js';
import { BUCKETS } from '../key-layout.js';
import { CLUSTER_LOCK_SCRIPT, RECORD_SCRIPT } from '../lua/lock-script.js';
import { Server, type ServerSettings, type ServersListener } from '../server.js';
import type { ServerClock } from '../server-clock.js';
import type { Servers } from '../servers.js';
import type { Subscription } from '../subscription.js';
import { keyOf, readSlotMap } from './slot-map.js';

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
export class ClusterServers implements Servers, ServersListener {
  readonly isCluster = true;
  readonly #nodes = new Map<string, Node>();
  readonly #buckets: readonly Bucket[];
  #find: FindCluster | undefined;
  /** Aborts when the backend closes. */
  readonly #closing = new AbortController();
  #cluster: KnownCluster | undefined;
  #refreshing: Promise<void> | undefined;
  #isWatching = false;
  #delay = LOOK_AGAIN;

  constructor(
    private readonly finder: () => Promise<FindCluster>,
    private readonly settings: ServerSettings,
    private readonly listener: ServersListener,
  ) {
    // A pause for each call that was refused is no leak.
    setMaxListeners(0, this.#closing.signal);
    const { clock, layout, process, waitReplicas } = settings;
    const bucketOf = (_: unknown, index: number): Bucket => {
      const counter = layout.counterOf(index);
      const batcher = (script = CLUSTER_LOCK_SCRIPT): Batcher =>
        new Batcher(
          process,
          counter,
          script,
          clock,
          (notice, sentAt) => {
            listener.onNotice(notice, sentAt);
          },
          (error, sentAt) => this.#redirect(bucket, error, sentAt),
        );
      const first = batcher();
      const confirmer = waitReplicas > 0 ? batcher() : first;
      const bucket: Bucket = {
        channel: layout.channelOf(process, counter),
        batcher: first,
        confirmer,
        recorder: batcher(RECORD_SCRIPT),
        server: undefined,
      };
      return bucket;
    };
    this.#buckets = Array.from({ length: BUCKETS }, bucketOf);
  }

  get asks(): readonly Ask[] {
    return [...this.#nodes.values()].map(
      ({ server }) =>
        (command, ...args) =>
          server.commands.ask(command, ...args),
    );
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

  batcherOf(lock: string): Batcher {
    return this.#bucketOf(lock).batcher;
  }

  confirm(operation: Operation, lease: number): void {
    const { server, confirmer } = this.#bucketOf(operation.lock);
    server?.confirmations?.limit(lease);
    confirmer.add(operation);
  }

  recorderOf(record: string): Batcher {
    return this.#bucketOf(record).recorder;
  }

  channelOf(lock: string): string {
    return this.#bucketOf(lock).channel;
  }

  clockOf(lock: string): ServerClock | undefined {
    return this.#bucketOf(lock).server?.serverClock;
  }

  probe(lock: string): void {
    this.#bucketOf(lock).server?.subscription.probe();
  }

  async close(): Promise<void> {
    this.#closing.abort();
    const refreshed = this.#refreshing?.catch(() => undefined);
    await Promise.all([refreshed, ...[...this.#nodes.values()].map(({ server }) => server.close())]);
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
    const bucket = this.#buckets.find((each) => each.channel === channel);
    // A message about a bucket that another server has by now is not believed.
    if (bucket?.server?.subscription === from) this.listener.onMessage(message, channel, from);
  }

  onNotice(notice: string, sentAt: number): void {
    this.listener.onNotice(notice, sentAt);
  }

  #bucketOf(lock: string): Bucket {
    return (this.#buckets[this.settings.layout.bucketIn(lock)] ?? this.#buckets[0]) as Bucket;
  }

  #redirect(bucket: Bucket, error: Error, sentAt: number): Promise<void> | undefined {
    if (!ELSEWHERE.test(error.message)) return undefined;
    if (this.#isClosed || this.settings.clock.now() - sentAt > this.settings.commandTimeout) return undefined;
    return this.#seek(bucket, error.message.startsWith('CLUSTERDOWN '));
  }

  /**
   * Resolves when another server is known to have the bucket, or when it is time to ask the same one again.
   *
   * @param isCutOff whether its server has lost the majority of the Cluster, by its own account
   */
  async #seek(bucket: Bucket, isCutOff: boolean): Promise<void> {
    const before = bucket.server;
    // A server that refuses is asked again until that takes too long.
    await this.#refresh(before, isCutOff).catch(() => undefined);
    if (bucket.server === before) await this.#pause(LOOK_AGAIN);
    else
      await [...this.#nodes.values()].find(({ server }) => server === bucket.server)?.connected.catch(() => undefined);
  }

  /** Looks for the masters until each has answered. */
  #watch(): void {
    if (this.#isWatching) return;
    this.#isWatching = true;
    void (async () => {
      do {
        await this.#pause(this.#delay);
        this.#delay = Math.min(this.#delay * 2, LOOK_AT_LEAST);
        await this.#refresh().catch(() => undefined);
      } while (!this.#isClosed && !this.#buckets.every(({ batcher }) => batcher.isReachable));
      this.#isWatching = false;
    })();
  }

  /**
   * Runs detached, because the connections to new masters outlive the call that was refused.
   *
   * @param refusing the server that has just refused a call, if one has
   */
  #refresh(refusing?: Server, isCutOff = false): Promise<void> {
    this.#refreshing ??= detached(() => this.#readMap(refusing, isCutOff)).finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #readMap(refusing: Server | undefined, isCutOff: boolean): Promise<void> {
    if (this.#isClosed) return;
    // The server that has just reported a slot elsewhere knows best. One that is cut off from the others names itself as the master of its
    // slots as long as the cut lasts, although its replica was promoted, so it is asked last.
    const rank = isCutOff ? 1 : -1;
    const rankOf = ({ server }: Node) => (server === refusing ? rank : 0);
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
    for (const [index, bucket] of this.#buckets.entries()) {
      const address = map[index];
      // No master serves it for now: the old one may come back to it.
      if (address === undefined) continue;
      const { server } = this.#nodeAt(address);
      if (bucket.server === server) continue;
      if (bucket.server !== undefined) hasMoved = true;
      bucket.server = server;
      bucket.batcher.connection = server.commands;
      if (server.confirmations) bucket.confirmer.connection = server.confirmations;
      bucket.recorder.connection = server.confirmations ?? server.commands;
    }
    for (const [key, { server }] of this.#nodes) {
      const channels = this.#buckets.filter((bucket) => bucket.server === server).map(({ channel }) => channel);
      if (channels.length > 0) server.subscription.listenTo(channels);
      else {
        this.#nodes.delete(key);
        void server.close();
      }
    }
    // Holds are renewed where they are now before any request asks there. A new server reports by itself that it is up.
    if (hasMoved) this.listener.onUp();
  }

  #nodeAt(address: Address): Node {
    const key = keyOf(address);
    const known = this.#nodes.get(key);
    if (known) return known;
    const cluster = this.#cluster;
    if (cluster === undefined) throw new Error('A node of the Cluster is named before one was found.');
    const server = new Server(this.settings, () => cluster.connectTo(address), this);
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

interface Node {
  readonly address: Address;
  readonly server: Server;
  readonly connected: Promise<void>;
}

/** The locks of one hash slot. */
interface Bucket {
  readonly channel: string;
  readonly batcher: Batcher;
  readonly confirmer: Batcher;
  readonly recorder: Batcher;
  server: Server | undefined;
}
