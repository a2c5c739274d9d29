import { Batcher, INSPECT, INSPECTION, type Operation } from './client/batcher.js';
import type { ConnectionListener } from './client/command-connection.js';
import type { ServerCall } from './client/server-diagnostics.js';
import { type Connect, NotSent } from './client/redis-connection.js';
import { CLUSTER_LOCK_SCRIPT, LOCK_SCRIPT, RECORD_SCRIPT } from './lua/lock-script.js';
import { RedisServer, type ServerSettings } from './redis-server.js';
import type { Subscription, SubscriptionListener } from './subscription.js';

// How many keys to read per SCAN. Each SCAN takes 0.5 to 0.9 ms on a busy machine.
const PAGE = '500';

/**
 * The source of a notice: the reply to a call sent at `sentAt`, or a channel, which anyone can publish to. A broadcast
 * may come from a server that does not have the shard, and has undone the grant because it had no receiver itself.
 */
export type NoticeOrigin = { readonly sentAt: number } | { readonly channel: string; readonly isBroadcast: boolean };

/** Reacts to events of the servers. */
export interface ServersListener extends ConnectionListener, Pick<SubscriptionListener, 'onListening'> {
  /** Called for a grant. */
  onNotice(notice: string, origin: NoticeOrigin): void;
}

/**
 * Locks that share a counter, channel, and server: all of a namespace's locks on a single server, or one bucket's in a
 * Cluster.
 */
export class Shard {
  /** The channel on which this process receives notices about these locks. */
  readonly channel: string;
  readonly batcher: Batcher;
  /**
   * Runs operations on job records. Their replies are delivered once `waitReplicas` replicas have acknowledged them.
   */
  readonly recorder: Batcher;
  readonly #confirmer: Batcher;
  /** The server that currently has these locks. */
  server: RedisServer | undefined;

  constructor(
    { clock, layout, process, waitReplicas, topology }: ServerSettings,
    readonly counter: string,
    servers: RedisServers,
  ) {
    const onNotice = (notice: string, sentAt: number) => {
      servers.listener.onNotice(notice, { sentAt });
    };
    const redirect = (error: Error, sentAt: number) => servers.redirect(this, error, sentAt);
    const batcher = (script = topology === 'cluster' ? CLUSTER_LOCK_SCRIPT : LOCK_SCRIPT) =>
      new Batcher(process, counter, script, clock, onNotice, redirect);
    this.channel = layout.channelOf(process, counter);
    this.batcher = batcher();
    this.#confirmer = waitReplicas > 0 ? batcher() : this.batcher;
    this.recorder = batcher(RECORD_SCRIPT);
  }

  moveTo(server: RedisServer): void {
    this.server = server;
    this.batcher.connection = server.commands;
    if (server.confirmations) this.#confirmer.connection = server.confirmations;
    this.recorder.connection = server.confirmations ?? server.commands;
  }

  /** Sends a renewal for `lease` ms. Its reply is delivered once `waitReplicas` replicas have acknowledged it. */
  confirm(operation: Operation, lease: number): void {
    this.server?.confirmations?.limit(lease);
    this.#confirmer.add(operation);
  }

  /** Sends a plain command. Commands in the same tick are pipelined. */
  call(command: string, ...args: string[]): Promise<unknown> {
    return (
      this.server?.commands.call(command, ...args) ?? Promise.reject(new NotSent('No known server stores this key.'))
    );
  }
}

/**
 * A backend's servers: a single server, the master that Sentinel reports, or the masters of a Cluster. Each shard is on
 * one of them.
 */
export abstract class RedisServers implements ConnectionListener, SubscriptionListener {
  protected readonly shards: readonly Shard[];
  /** Counts connections and takeovers, to detect any that happen during a scan. */
  #epoch = 0;

  constructor(
    protected readonly settings: ServerSettings,
    readonly listener: ServersListener,
  ) {
    const { layout } = settings;
    const counters = this.isCluster ? layout.counters : [layout.counter];
    this.shards = counters.map((counter) => new Shard(settings, counter, this));
  }

  get isCluster(): boolean {
    return this.settings.topology === 'cluster';
  }

  /** All servers in use. */
  protected abstract get all(): readonly RedisServer[];

  /** Rejects if any server is unreachable, but keeps trying to reconnect in the background. */
  abstract connect(): Promise<void>;

  onUp(): void {
    this.#epoch += 1;
    this.listener.onUp();
  }

  onDown(cause: unknown): void {
    this.listener.onDown(cause);
  }

  onListening(): void {
    this.listener.onListening();
  }

  onMessage(message: string, channel: string, from: Subscription): void {
    const shard = this.shards.find((each) => each.channel === channel);
    // Ignores messages from a server that no longer has the shard.
    if (shard?.server?.subscription !== from) return;
    this.listener.onNotice(message, { channel, isBroadcast: this.isCluster && !from.isSharded });
  }

  /** In a Cluster, handles a rejected call to a shard. See `Redirect`. */
  redirect(_shard: Shard, _error: Error, _sentAt: number): Promise<void> | undefined {
    return undefined;
  }

  /** For each server, a function that sends it a command. */
  get serverCalls(): readonly ServerCall[] {
    return this.all.map(({ commands }) => commands.call.bind(commands));
  }

  /** The shard for a lock or any of our other Redis keys. */
  shardOf(lock: string): Shard {
    return (this.shards[this.isCluster ? this.settings.layout.bucketIn(lock) : 0] ?? this.shards[0]) as Shard;
  }

  /**
   * Scans all servers for keys that match a pattern, page by page.
   *
   * Rejects if a connection was re-established, because a cursor is only valid on the server that returned it, or if a
   * slot has moved, because its keys may have been missed. Either event triggers `onUp` before the scan ends.
   */
  async *scan(pattern: string): AsyncGenerator<readonly string[]> {
    const epoch = this.#epoch;
    // The scan would miss a disconnected shard's keys.
    if (!this.shards.every(({ batcher }) => batcher.isReachable)) throw new Error('A server is not connected.');
    for (const call of this.serverCalls) {
      let cursor = '0';
      do {
        const [next, names] = (await call('scan', cursor, 'MATCH', pattern, 'COUNT', PAGE)) as [string, string[]];
        yield names;
        cursor = next;
      } while (cursor !== '0');
    }
    if (this.isCluster) {
      // A slot may have moved from a server not yet scanned to one already scanned. Inspecting a lock in that slot
      // reveals the move. We use the empty key, which no lock can have.
      await Promise.all(this.shards.map(({ batcher, counter }) => batcher.run(`${counter}:`, INSPECT, INSPECTION)));
    }
    if (this.#epoch !== epoch) throw new Error('A connection was re-established during the scan.');
  }

  async close(): Promise<void> {
    await Promise.all(this.all.map((server) => server.close()));
  }
}

/** One server, or the master that Sentinel reports. */
export class SingleServer extends RedisServers {
  #server: RedisServer | undefined;
  #isClosed = false;

  constructor(
    private readonly connections: () => Promise<Connect>,
    settings: ServerSettings,
    listener: ServersListener,
  ) {
    super(settings, listener);
  }

  protected get all(): readonly RedisServer[] {
    return this.#server ? [this.#server] : [];
  }

  async connect(): Promise<void> {
    const connect = await this.connections();
    if (this.#isClosed) throw new Error('The backend was closed before it connected.');
    const server = new RedisServer(this.settings, connect, this);
    this.#server = server;
    for (const shard of this.shards) shard.moveTo(server);
    server.subscription.listenTo(this.shards.map(({ channel }) => channel));
    await server.connect();
  }

  override close(): Promise<void> {
    this.#isClosed = true;
    return super.close();
  }
}
