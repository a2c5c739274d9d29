import type { Timer } from '../../../api/clock.js';
import { BUCKETS } from '../key-layout.js';
import { Lane } from '../lane.js';
import { CLUSTER_LOCK_SCRIPT } from '../lua/lock-script.js';
import type { Operation } from '../operation.js';
import { hardenedFor, type RedisClusterClient } from '../redis-client.js';
import type { ServerClock } from '../server-clock.js';
import { ServerLink } from '../server-link.js';
import type { Ask, Servers, ServersContext, ServersListener } from '../servers.js';
import { findCluster, type KnownCluster } from './discovery.js';
import { type Address, keyOf, readSlotMap } from './slot-map.js';

/** How soon the map is read again while a slot is on its way, or a master does not answer: then less and less often, in ms. */
const LOOK_AGAIN = 50;
const LOOK_AT_LEAST = 1_000;

/** What a server says when it has not run a script call because of where the keys are, or are not yet. */
const ELSEWHERE = /^(MOVED|ASK|TRYAGAIN|CLUSTERDOWN) /;

/**
 * The masters of a Redis Cluster: one link to each that serves one of our buckets, and one lane for each bucket.
 *
 * Commands do not go through ioredis' Cluster client. It sends a command again when its connection breaks (`retryDelayOnFailover`, up to
 * `maxRedirections` times), and keeps those for which it knows no node: after a fail-over, an ask whose attempt is over would
 * still be executed. Here a call is sent again only when the server has said that it did not run it.
 *
 * While a slot migrates, its bucket waits. `ASK` is not followed: the script also touches keys that are not named
 * in the call (queue, readers), and the importing node would take one that has not arrived yet for missing, and make it anew.
 */
export class ClusterServers implements Servers {
  readonly isCluster = true;
  readonly #links = new Map<string, Node>();
  readonly #lanes: readonly Lane[];
  readonly #channels: readonly string[];
  readonly #bucketOf = new Map<string, number>();
  readonly #pauses = new Map<Timer, () => void>();
  #cluster: KnownCluster | undefined;
  #refreshing: Promise<void> | undefined;
  #isWatching = false;
  #delay = LOOK_AGAIN;
  #isClosed = false;

  constructor(
    private readonly client: RedisClusterClient,
    private readonly context: ServersContext,
    private readonly listener: ServersListener,
  ) {
    const { layout, process } = context;
    const counters = Array.from({ length: BUCKETS }, (_, bucket) => layout.counterOf(bucket));
    this.#channels = counters.map((counter) => layout.channelOf(process, counter));
    this.#channels.forEach((channel, bucket) => this.#bucketOf.set(channel, bucket));
    this.#lanes = counters.map(
      (counter, bucket) =>
        new Lane(counter, CLUSTER_LOCK_SCRIPT, context, listener, (error, sentAt) =>
          this.#redirect(bucket, error, sentAt),
        ),
    );
  }

  get asks(): readonly Ask[] {
    return [...this.#links.values()].map(
      ({ link }) =>
        (command, ...args) =>
          link.commands.ask(command, ...args),
    );
  }

  async connect(): Promise<void> {
    try {
      await this.#refresh();
      if (this.#links.size === 0) throw new Error('No node of the Cluster tells its slots.');
      await Promise.all([...this.#links.values()].map(({ connected }) => connected));
    } catch (error) {
      this.#watch();
      throw error;
    }
  }

  add(operation: Operation): void {
    this.#laneOf(operation.lock)?.add(operation);
  }

  confirm(operation: Operation, lease: number): void {
    this.#laneOf(operation.lock)?.confirm(operation, lease);
  }

  isReachable(lock: string): boolean {
    return this.#laneOf(lock)?.link?.commands.isUp ?? false;
  }

  clockOf(lock: string): ServerClock | undefined {
    return this.#laneOf(lock)?.link?.serverClock;
  }

  probe(lock: string): void {
    this.#laneOf(lock)?.link?.subscription.probe();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const [timer, resume] of this.#pauses) {
      this.context.clock.clearTimer(timer);
      resume();
    }
    const refreshed = this.#refreshing?.catch(() => undefined);
    await Promise.all([refreshed, ...[...this.#links.values()].map(({ link }) => link.close())]);
  }

  #laneOf(lock: string): Lane | undefined {
    return this.#lanes[this.context.layout.bucketIn(lock)];
  }

  #redirect(bucket: number, error: Error, sentAt: number): Promise<void> | undefined {
    if (!ELSEWHERE.test(error.message)) return undefined;
    if (this.#isClosed || this.context.clock.now() - sentAt > this.context.patience) return undefined;
    return this.#seek(bucket);
  }

  /** Resolves when another server is known to have the bucket, or when it is time to ask the same one again. */
  async #seek(bucket: number): Promise<void> {
    const lane = this.#lanes[bucket];
    const before = lane?.link;
    // Who has refused is asked again, then, until that takes too long.
    await this.#refresh(before).catch(() => undefined);
    if (lane?.link === before) await this.#pause(LOOK_AGAIN);
    else await [...this.#links.values()].find(({ link }) => link === lane?.link)?.connected.catch(() => undefined);
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
      } while (!this.#isClosed && !this.#lanes.every(({ link }) => link?.commands.isUp));
      this.#isWatching = false;
    })();
  }

  #refresh(first?: ServerLink): Promise<void> {
    this.#refreshing ??= this.#readMap(first).finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #readMap(first: ServerLink | undefined): Promise<void> {
    if (this.#isClosed) return;
    // Whoever has just said that a slot is elsewhere knows best.
    const nodes = [...this.#links.values()].sort((a, b) => Number(b.link === first) - Number(a.link === first));
    for (const { address, link } of nodes) {
      const reply = await link.commands.ask('cluster', 'SLOTS').catch(() => undefined);
      if (reply === undefined) continue;
      this.#apply(readSlotMap(reply, address, this.#cluster?.natMap));
      return;
    }
    this.#cluster = await findCluster(this.client, this.context.patience);
    this.#apply(readSlotMap(this.#cluster.slots, this.#cluster.asked, this.#cluster.natMap));
  }

  #apply(map: readonly (Address | undefined)[]): void {
    if (this.#isClosed) return;
    let hasMoved = false;
    for (const [bucket, lane] of this.#lanes.entries()) {
      const address = map[bucket];
      // Nobody serves it for now: the old master may come back to it.
      if (address === undefined) continue;
      const { link } = this.#nodeAt(address);
      if (lane.link !== undefined && lane.link !== link) hasMoved = true;
      lane.link = link;
    }
    for (const [key, { link }] of this.#links) {
      const channels = this.#channels.filter((_, bucket) => this.#lanes[bucket]?.link === link);
      if (channels.length > 0) link.subscription.listenTo(channels);
      else {
        this.#links.delete(key);
        void link.close();
      }
    }
    // Holds are renewed where they are now before anybody asks there. A new link says so itself when it is up.
    if (hasMoved) this.listener.onUp();
  }

  #nodeAt(address: Address): Node {
    const key = keyOf(address);
    const known = this.#links.get(key);
    if (known) return known;
    const { context, listener } = this;
    const template = this.#cluster?.template;
    if (template === undefined) throw new Error('A node of the Cluster is named before one was found.');
    const hardened = hardenedFor(context.patience);
    const link = new ServerLink(context, () => template.duplicate({ ...hardened, ...address, readOnly: false }), true, {
      onUp: listener.onUp,
      onDown: (cause) => {
        listener.onDown(cause);
        this.#delay = LOOK_AGAIN;
        this.#watch();
      },
      onListening: listener.onListening,
      onRefused: () => {
        this.#watch();
      },
      onMessage: (message, channel) => {
        const bucket = this.#bucketOf.get(channel);
        // What a server tells of a bucket that another one has by now is not believed.
        if (bucket !== undefined && this.#lanes[bucket]?.link === link) listener.onNotice(message, undefined);
      },
    });
    const connected = link.connect();
    connected.catch(() => {
      this.#watch();
    });
    const node = { address, link, connected };
    this.#links.set(key, node);
    return node;
  }

  #pause(delay: number): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = this.context.clock.setTimer(() => {
        this.#pauses.delete(timer);
        resolve();
      }, delay);
      this.#pauses.set(timer, resolve);
    });
  }
}

interface Node {
  readonly address: Address;
  readonly link: ServerLink;
  readonly connected: Promise<void>;
}
