import { LockConfigError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import type {
  AcquireRequest,
  BackendContext,
  Diagnostic,
  Grant,
  Holding,
  LockBackend,
  LockCapabilities,
  RecordStore,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
  WaitBoard,
} from '../../api/lock-provider.js';
import { SeenHolders } from '../shared/seen-holders.js';
import { nextTick } from '../../core/toolkit/real-timers.js';
import type { Ask } from './client/server-diagnostics.js';
import { clusterOf, connectionsOf, type RedisSettings, topologyOf } from './client/redis-options.js';
import { whyTooOldRedis } from './client/server-diagnostics.js';
import { isUndeclared } from './client/batcher.js';
import { ClusterServers } from './cluster-servers.js';
import { examine } from './redis-diagnostics.js';
import { KeyLayout } from './key-layout.js';
import { RedisOperatorView } from './redis-operator-view.js';
import { RedisRecords } from './redis-records.js';
import type { RedisRequest } from './redis-request.js';
import { RedisRequests } from './redis-requests.js';
import { RedisTexts } from './redis-texts.js';
import type { ServersListener } from './redis-server.js';
import { type RedisServers, SingleServer } from './redis-servers.js';
import { notConnected, notListed, unavailable } from './unavailable.js';

/** The id of a process in the queue and on its channel: 48 random bits, as wide as the script expects. */
const PROCESS_ID_DIGITS = 12;

/** A node of a Cluster refuses the keys of other nodes, and fails over to a server that a provider of one server does not know. */
const CLUSTERED =
  'this server is a node of a Cluster, and was given as a single server. Give the provider "cluster" with its nodes, such as { cluster: [{ host, port }] }, or a Cluster client.';

/** Touches a key that the call does not declare, as the script of the locks does in a Cluster. */
const UNDECLARED_KEY_SCRIPT = "return redis.call('EXISTS', ARGV[1])";
/** A single server is given all keys when it refuses this. */
const STRICT_CLUSTER =
  'this Cluster refuses scripts that touch keys which a call does not declare, so no lock could be acquired. Allow them (Dragonfly: --default_lua_flags=allow-undeclared-keys), or give the provider a single server.';

/** The locks of one application on its Redis. */
export class RedisBackend implements LockBackend<RedisRequest>, ServersListener {
  readonly capabilities: LockCapabilities = {
    shared: true,
    limits: true,
    fair: true,
    fencing: true,
    lease: 'per-lock',
    minHold: true,
    forceRelease: true,
    list: true,
    ordered: true,
  };
  readonly commandTimeout: number;
  readonly records: RecordStore;
  readonly waits: WaitBoard;
  readonly #layout: KeyLayout;
  /** Private, because `inspect` would show a password. */
  readonly #settings: RedisSettings;
  readonly #servers: RedisServers;
  readonly #requests: RedisRequests;
  readonly #texts: RedisTexts;
  readonly #operatorView: RedisOperatorView;
  readonly #holders: SeenHolders;
  #wasConnected = false;
  /** How often a server was connected or took over. */
  #ups = 0;
  #isClosed = false;

  constructor(
    private readonly context: BackendContext,
    settings: RedisSettings,
  ) {
    this.commandTimeout = settings.commandTimeout;
    this.#layout = new KeyLayout(context.namespace);
    this.#settings = settings;
    this.#servers = this.#serversOf(settings);
    this.#texts = new RedisTexts(this.#servers, this.#layout, context.name, context.instance);
    this.waits = this.#texts;
    this.#operatorView = new RedisOperatorView(this.#servers, this.#layout, this.#texts, context.logger);
    this.#holders = new SeenHolders(context.instance, (id) => this.#texts.nameOf(id));
    const confirmsAll = settings.waitReplicas > 0;
    this.#requests = new RedisRequests(context, this.#servers, this.#layout, confirmsAll, this.#holders);
    this.records = new RedisRecords(context, this.#servers, this.#layout, settings.waitReplicas > 0, () => this.#ups);
  }

  async connect(): Promise<void> {
    const { name } = this.context;
    try {
      await this.#servers.connect();
      await this.#refuseUnfit();
    } catch (cause) {
      if (cause instanceof LockConfigError) throw cause;
      throw notConnected(name, cause);
    } finally {
      // The connections keep trying by themselves. From here on, a success is a recovery.
      this.#wasConnected = true;
    }
  }

  acquire(request: AcquireRequest<RedisRequest>): Promise<Grant | 'busy' | 'not-asked'> {
    return this.#requests.acquire(request, this.#layout.lockOf(request.key));
  }

  chains(key: string, next: string): boolean {
    if (!this.#servers.isCluster) return true;
    const [bucket, nextBucket] = [key, next].map((each) => this.#layout.bucketIn(this.#layout.lockOf(each)));
    return bucket === nextBucket;
  }

  unansweredFor({ state }: AcquireRequest<RedisRequest>): number {
    return state?.unansweredFor ?? 0;
  }

  heldBy(request: AcquireRequest<RedisRequest>): Holding | null {
    return this.#holders.heldBy(request);
  }

  label(request: AcquireRequest, text: string, duration: number): void {
    this.#texts.label(request, text, duration);
  }

  labelOf(key: string): Promise<string | null> {
    return this.#texts.labelOf(key);
  }

  renew({ state }: AcquireRequest<RedisRequest>, lease: number): Promise<RenewOutcome> {
    return state?.renew(lease) ?? Promise.resolve('lost');
  }

  release({ state }: AcquireRequest<RedisRequest>, { keepFor }: ReleaseOptions): Promise<ReleaseOutcome> {
    return state?.release(keepFor) ?? Promise.resolve('lost');
  }

  async inspect(key: string): Promise<LockInfo | null> {
    try {
      return await this.#operatorView.inspect(key);
    } catch (error) {
      throw unavailable(this.context.name, key, error);
    }
  }

  async forceRelease(key: string): Promise<boolean> {
    try {
      return await this.#operatorView.forceRelease(key);
    } catch (error) {
      throw unavailable(this.context.name, key, error);
    }
  }

  async *list(query: { readonly prefix: string }): AsyncGenerator<LockInfo> {
    const ups = this.#ups;
    try {
      yield* this.#operatorView.list(query);
      // The cursor of one server means nothing to another, and locks that moved with their slot may have been missed.
      if (this.#ups !== ups) throw new Error('A connection was made again meanwhile.');
    } catch (cause) {
      throw notListed(this.context.name, cause);
    }
  }

  async namespaces(): Promise<readonly string[]> {
    try {
      return await this.#operatorView.namespaces();
    } catch (cause) {
      throw notListed(this.context.name, cause);
    }
  }

  register(): Promise<void> {
    return this.#texts.register();
  }

  diagnose(): Promise<Diagnostic[]> {
    const { isCluster, asks } = this.#servers;
    const { waitReplicas } = this.#settings;
    const { counter: key, pattern } = this.#layout;
    return examine(asks, { isCluster, waitReplicas, key, channel: this.#layout.channelOf(''), pattern });
  }

  /** @throws LockConfigError for a server that cannot keep these locks. Where INFO is refused, the first lock finds out. */
  async #refuseUnfit(): Promise<void> {
    const infos = await Promise.all(this.#servers.asks.map(async (ask) => String(await ask('info').catch(() => ''))));
    const reason =
      infos.map(whyTooOldRedis).find((why) => why !== undefined) ??
      (this.#servers.isCluster
        ? await this.#strictCluster()
        : infos.some((info) => /^cluster_enabled:1/m.test(info))
          ? CLUSTERED
          : undefined);
    if (reason === undefined) return;
    const { name } = this.context;
    throw new LockConfigError(`Lock provider "${name}": ${reason}`, { provider: name });
  }

  async #strictCluster(): Promise<string | undefined> {
    const touch = async (ask: Ask) => {
      await ask('eval', UNDECLARED_KEY_SCRIPT, '0', this.#layout.counter);
    };
    const errors = await Promise.all(this.#servers.asks.map((ask) => touch(ask).catch((error: unknown) => error)));
    return errors.some(isUndeclared) ? STRICT_CLUSTER : undefined;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#requests.close(new Error('The backend was closed.'));
    // Operations that were added in this tick are sent at its end.
    await new Promise<void>((resolve) => {
      nextTick(resolve);
    });
    await this.#servers.close();
  }

  onUp(): void {
    this.#ups += 1;
    // The core renews holds before it asks again, so no request is granted a lock that is still ours.
    if (this.#wasConnected) this.context.emit({ type: 'recovered' });
  }

  onDown(cause: unknown): void {
    if (this.#isClosed) return;
    this.context.emit({ type: 'unavailable', cause });
    this.#requests.onDown(cause);
  }

  onListening(): void {
    this.#requests.askAgain();
  }

  onMessage(message: string, channel: string): void {
    this.#requests.onNotice(message, { channel });
  }

  onNotice(notice: string, sentAt: number): void {
    this.#requests.onNotice(notice, { sentAt });
  }

  #serversOf(settings: RedisSettings): RedisServers {
    const { commandTimeout, waitReplicas } = settings;
    const { clock, logger, random } = this.context;
    const process = random.id().slice(-PROCESS_ID_DIGITS);
    const topology = topologyOf(settings);
    const shared = { clock, random, logger, layout: this.#layout, process, commandTimeout, waitReplicas, topology };
    return topology === 'cluster'
      ? new ClusterServers(() => clusterOf(settings, random), shared, this)
      : new SingleServer(() => connectionsOf(settings, random), shared, this);
  }
}
