import { Batcher, LOOK, type Operation } from './client/batcher.js';
import type { Ask } from './client/server-diagnostics.js';
import { type Connect, NotSent } from './client/redis-connection.js';
import { CLUSTER_LOCK_SCRIPT, LOCK_SCRIPT, RECORD_SCRIPT } from './lua/lock-script.js';
import { RedisServer, type ServerSettings, type ServersListener } from './redis-server.js';

// Names that the server reads for one SCAN: 0.5 to 0.9 ms on a busy machine.
const PAGE = '500';

/** Cluster: when a call to this shard may be sent again that a server has refused before it ran. See `Redirect`. */
export type RedirectOf = (shard: Shard, error: Error, sentAt: number) => Promise<void> | undefined;

/** Locks that share a counter, a channel and a server: all locks of a namespace on a single server, or one of its buckets on a Cluster. */
export class Shard {
  /** Where this process is notified about these locks. */
  readonly channel: string;
  readonly batcher: Batcher;
  /** For records: its operations are answered when as many replicas have them as the options ask for. */
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

  /** The server that keeps these locks now. */
  get server(): RedisServer | undefined {
    return this.#server;
  }

  moveTo(server: RedisServer): void {
    this.#server = server;
    this.batcher.connection = server.commands;
    if (server.confirmations) this.#confirmer.connection = server.confirmations;
    this.recorder.connection = server.confirmations ?? server.commands;
  }

  /** Sends an operation that keeps its lock held for `lease` ms: answered when as many replicas have it as the options ask for. */
  confirm(operation: Operation, lease: number): void {
    this.#server?.confirmations?.limit(lease);
    this.#confirmer.add(operation);
  }

  /** Sends a command without the script of the locks. Commands of one tick travel together. */
  ask(command: string, ...args: string[]): Promise<unknown> {
    return (
      this.#server?.commands.ask(command, ...args) ??
      Promise.reject(new NotSent('No server is known to keep this key.'))
    );
  }
}

/** The servers of a backend: one, the master that Sentinel names, or the masters of a Cluster. Each shard is on one of them at a time. */
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

  /** All that are in use. */
  protected abstract get all(): readonly RedisServer[];

  /** Rejects when one of them cannot be reached, and keeps trying. */
  abstract connect(): Promise<void>;

  /** How to ask each of them, for diagnostics. */
  get asks(): readonly Ask[] {
    return this.all.map(
      ({ commands }) =>
        (command, ...args) =>
          commands.ask(command, ...args),
    );
  }

  /** The shard of a lock, or of any other key of ours. */
  shardOf(lock: string): Shard {
    return (this.shards[this.isCluster ? this.settings.layout.bucketIn(lock) : 0] ?? this.shards[0]) as Shard;
  }

  /**
   * The keys of all servers that match a pattern, page by page. They are all there unless a connection was made again, or a slot moved,
   * meanwhile: both are reported as `onUp`, before this ends.
   */
  async *scan(pattern: string): AsyncGenerator<readonly string[]> {
    // The keys of a shard without a server would be missing.
    if (!this.shards.every(({ batcher }) => batcher.isReachable)) throw new Error('A server is not connected.');
    for (const ask of this.asks) {
      let cursor = '0';
      do {
        const [next, names] = (await ask('scan', cursor, 'MATCH', pattern, 'COUNT', PAGE)) as [string, string[]];
        yield names;
        cursor = next;
      } while (cursor !== '0');
    }
    if (!this.isCluster) return;
    // A slot may move from a server that is still to be read to one that was read already. Whether it has, its server says when it is asked:
    // for a key that no lock has, since the empty key is refused.
    await Promise.all(this.shards.map(({ batcher, counter }) => batcher.run(`${counter}:`, 'I', LOOK)));
  }

  async close(): Promise<void> {
    await Promise.all(this.all.map((server) => server.close()));
  }
}

/** One server, or the master that Sentinel names. */
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
    if (this.#isClosed) throw new Error('It was closed before it had connected.');
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
