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
import { clusterOf, connectionsOf, type RedisSettings, topologyOf } from './client/redis-options.js';
import { whyTooOldRedis } from './client/server-diagnostics.js';
import { isUndeclared } from './client/batcher.js';
import { ClusterServers } from './cluster-servers.js';
import { diagnoseServers } from './redis-diagnostics.js';
import { KeyLayout } from './key-layout.js';
import { RedisOperatorView } from './redis-operator-view.js';
import { RedisRecords } from './redis-records.js';
import type { RedisRequest } from './redis-request.js';
import { RedisRequests } from './redis-requests.js';
import { RedisTexts } from './redis-texts.js';
import { type NoticeOrigin, type RedisServers, type ServersListener, SingleServer } from './redis-servers.js';
import { notConnected, notListed, unavailable } from './unavailable.js';

/** A process's id in queues and on its channel: 48 random bits, the width that the script expects. */
const PROCESS_ID_DIGITS = 12;

/**
 * A Cluster node rejects other nodes' keys and may fail over to a server that a single-server provider doesn't know
 * about.
 */
const CLUSTERED =
  'this server is a Cluster node, but it is configured as a single server. Pass all nodes as "cluster", such as { cluster: [{ host, port }] }, or pass a Cluster client.';

/** Touches an undeclared key, as the lock script does in a Cluster. */
const UNDECLARED_KEY_SCRIPT = "return redis.call('EXISTS', ARGV[1])";
/** Only for a Cluster. For a strict single server, the batcher declares all keys instead. */
const STRICT_CLUSTER =
  'this Cluster rejects scripts that touch undeclared keys, so locks cannot be acquired. Allow them (Dragonfly: --default_lua_flags=allow-undeclared-keys), or use a single server.';

/** A Redis provider's backend. */
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
  /** Private, because `util.inspect` would otherwise show a password. */
  readonly #settings: RedisSettings;
  readonly #servers: RedisServers;
  readonly #requests: RedisRequests;
  readonly #texts: RedisTexts;
  readonly #operatorView: RedisOperatorView;
  readonly #holders: SeenHolders;
  #wasConnected = false;
  #isClosed = false;

  constructor(
    private readonly context: BackendContext,
    settings: RedisSettings,
  ) {
    const { commandTimeout, waitReplicas } = settings;
    const { clock, logger, random } = context;
    this.commandTimeout = commandTimeout;
    this.#layout = new KeyLayout(context.namespace);
    this.#settings = settings;
    const process = random.id().slice(-PROCESS_ID_DIGITS);
    const topology = topologyOf(settings);
    const shared = { clock, random, logger, layout: this.#layout, process, commandTimeout, waitReplicas, topology };
    this.#servers =
      topology === 'cluster'
        ? new ClusterServers(() => clusterOf(settings, random), shared, this)
        : new SingleServer(() => connectionsOf(settings, random), shared, this);
    this.#texts = new RedisTexts(this.#servers, this.#layout, context.name, context.instance);
    this.waits = this.#texts;
    this.#operatorView = new RedisOperatorView(this.#servers, this.#layout, this.#texts, logger);
    this.#holders = new SeenHolders(context.instance, (id) => this.#texts.nameOf(id));
    const isReplicated = waitReplicas > 0;
    this.#requests = new RedisRequests(context, this.#servers, this.#layout, isReplicated, this.#holders);
    this.records = new RedisRecords(context, this.#servers, this.#layout, isReplicated);
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
      // The connections keep retrying in the background. From now on, connecting counts as a recovery.
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
    try {
      yield* this.#operatorView.list(query);
    } catch (cause) {
      throw notListed(this.context.name, 'locks', cause);
    }
  }

  async namespaces(): Promise<readonly string[]> {
    try {
      return await this.#operatorView.namespaces();
    } catch (cause) {
      throw notListed(this.context.name, 'locks', cause);
    }
  }

  register(): Promise<void> {
    return this.#texts.register();
  }

  diagnose(): Promise<Diagnostic[]> {
    const { isCluster, serverCalls } = this.#servers;
    const { waitReplicas } = this.#settings;
    const { counter: key, pattern } = this.#layout;
    return diagnoseServers(serverCalls, { isCluster, waitReplicas, key, channel: this.#layout.channelOf(''), pattern });
  }

  /**
   * @throws LockConfigError if the server can't store locks. If INFO is denied, the first lock request reveals the
   * problem.
   */
  async #refuseUnfit(): Promise<void> {
    const infos = await Promise.all(
      this.#servers.serverCalls.map(async (call) => String(await call('info').catch(() => ''))),
    );
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
    const touch = ['eval', UNDECLARED_KEY_SCRIPT, '0', this.#layout.counter] as const;
    const outcomes = await Promise.all(
      this.#servers.serverCalls.map((call) => call(...touch).catch((error: unknown) => error)),
    );
    return outcomes.some(isUndeclared) ? STRICT_CLUSTER : undefined;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#requests.close(new Error('The backend was closed.'));
    // Operations added in this tick are sent at its end, so wait until then.
    await new Promise<void>((resolve) => {
      nextTick(resolve);
    });
    await this.#servers.close();
  }

  onUp(): void {
    // The core renews held locks before it requests others, so no request is granted a lock that we still hold.
    if (this.#wasConnected) this.context.emit({ type: 'recovered' });
  }

  onDown(cause: unknown): void {
    if (this.#isClosed) return;
    this.context.emit({ type: 'unavailable', cause });
    this.#requests.onDown(cause);
  }

  onListening(): void {
    this.#requests.pollAll();
  }

  onNotice(notice: string, origin: NoticeOrigin): void {
    this.#requests.onNotice(notice, origin);
  }
}
