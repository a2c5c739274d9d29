import { Batcher, INSPECTION, type Operation } from './client/batcher.js';
import type { ServerCall } from './client/server-diagnostics.js';
import { type Connect, NotSent } from './client/redis-connection.js';
import { CLUSTER_LOCK_SCRIPT, LOCK_SCRIPT, RECORD_SCRIPT } from './lua/lock-script.js';
import { RedisServer, type ServerSettings, type ServersListener } from './redis-server.js';

// How many keys to read per SCAN. Each SCAN takes 0.5 to 0.9 ms on a busy machine.
const PAGE = '500';

/** In a Cluster, handles a rejected call to a shard. See `Redirect`. */
export type RedirectOf = (shard: Shard, error: Error, sentAt: number) => Promise<void> | undefined;

/** Locks that share a counter, channel, and server: all of a namespace's locks on a single server, or one bucket's in a Cluster. */
export class Shard {
  /** The channel on which this process receives notices about these locks. */
  readonly channel: string;
  readonly batcher: Batcher;
  /** Runs operations on job records. Their replies are delivered once `waitReplicas` replicas have acknowledged them. */
  readonly recorder: Batcher;
  readonly #confirmer: Batcher;
  #server: RedisServer | undefined;

  constructor(
    { clock, layout, process, waitReplicas, topology }: ServerSettings,
    readonly counter: string,
    onNotice: (notice: string, sentAt: number) => void,
    redirectOf: RedirectOf | undefined,
  ) {
    const redirect = redirectOf && ((error: Error, sentAt: number) => redirectOf(this, error, sentAt));
    const batcher = (script = topology === 'cluster' ? CLUSTER_LOCK_SCRIPT : LOCK_SCRIPT) =>
      new Batcher(process, counter, script, clock, onNotice, redirect);
    this.channel = layout.channelOf(process, counter);
    this.batcher = batcher();
    this.#confirmer = waitReplicas > 0 ? batcher() : this.batcher;
    this.recorder = batcher(RECORD_SCRIPT);
  }

  /** The server that currently has these locks. */
  get server(): RedisServer | undefined {
    return this.#server;
  }

  moveTo(server: RedisServer): void {
    this.#server = server;
    this.batcher.connection = server.commands;
    if (server.confirmations) this.#confirmer.connection = server.confirmations;
    this.recorder.connection = server.confirmations ?? server.commands;
  }

  /** Sends a renewal for `lease` ms. Its reply is delivered once `waitReplicas` replicas have acknowledged it. */
  confirm(operation: Operation, lease: number): void {
    this.#server?.confirmations?.limit(lease);
    this.#confirmer.add(operation);
  }

  /** Sends a plain command. Commands in the same tick are pipelined. */
  call(command: string, ...args: string[]): Promise<unknown> {
    return (
      this.#server?.commands.call(command, ...args) ?? Promise.reject(new NotSent('No known server stores this key.'))
    );
  }
}

/** A backend's servers: a single server, the master that Sentinel reports, or the masters of a Cluster. Each shard is on one of them. */
export abstract class RedisServers {
  protected readonly shards: readonly Shard[];

  constructor(
    protected readonly settings: ServerSettings,
    protected readonly listener: ServersListener,
    redirectOf?: RedirectOf,
  ) {
    const { layout } = settings;
    const onNotice = (notice: string, sentAt: number) => {
      listener.onNotice(notice, sentAt);
    };
    const counters = this.isCluster ? layout.counters : [layout.counter];
    this.shards = counters.map((counter) => new Shard(settings, counter, onNotice, redirectOf));
  }

  get isCluster(): boolean {
    return this.settings.topology === 'cluster';
  }

  /** All servers in use. */
  protected abstract get all(): readonly RedisServer[];

  /** Rejects if any server is unreachable, but keeps trying to reconnect in the background. */
  abstract connect(): Promise<void>;

  /** For each server, a function that sends it a command. */
  get serverCalls(): readonly ServerCall[] {
    return this.all.map(
      ({ commands }) =>
        (command, ...args) =>
          commands.call(command, ...args),
    );
  }

  /** The shard for a lock or any of our other Redis keys. */
  shardOf(lock: string): Shard {
    return (this.shards[this.isCluster ? this.settings.layout.bucketIn(lock) : 0] ?? this.shards[0]) as Shard;
  }

  /**
   * Scans all servers for keys that match a pattern, page by page. The result is complete unless a connection was
   * re-established or a slot moved during the scan. Either event triggers `onUp` before the scan ends.
   */
  async *scan(pattern: string): AsyncGenerator<readonly string[]> {
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
    if (!this.isCluster) return;
    // A slot may have moved from a server not yet scanned to one already scanned. Inspecting a lock in that slot reveals the move.
    // We use the empty key, which no lock can have.
    await Promise.all(this.shards.map(({ batcher, counter }) => batcher.run(`${counter}:`, 'I', INSPECTION)));
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
    const server = new RedisServer(this.settings, connect, this.listener);
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
