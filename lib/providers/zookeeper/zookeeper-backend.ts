import type {
  AcquireRequest,
  BackendContext,
  CasStore,
  Diagnostic,
  Grant,
  Holding,
  LockBackend,
  LockCapabilities,
  RecordStore,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import type { Timer } from '../../api/clock.js';
import { backOff, withTimeout } from '../../core/toolkit/timing.js';
import { safeText } from '../../api/cause.js';
import { LockCapacityError, LockConfigError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import { ZooKeeperRequest } from './zookeeper-request.js';
import { RequestContext } from './request-context.js';
import { LockPaths } from './lock-path.js';
import { OperatorView } from './operator-view.js';
import { mutex, readWrite } from './recipe.js';
import { ZooKeeperRecords } from './records.js';
import { Session } from './session.js';
import type { ClientListener, SocketClient } from './socket-client.js';
import { isFailure, ZooKeeperFailure } from './zookeeper-failure.js';
import { startTimeoutOf, type ZooKeeperSettings } from './zookeeper-options.js';

/** How long `close` waits for releases, and then for the session to end. */
const CLOSE_TIMEOUT = 2_000;
/** Backoff before the next session after the servers rejected one, in ms: a server may be temporarily misconfigured. */
const REFUSED = { first: 5_000, most: 30_000 };
/** The backoff after several sessions in a row have expired early. There is no delay after the first one. */
const EXPIRED = { first: 250, most: 10_000 };

/**
 * The maximum total size of one session's node paths, in bytes.
 *
 * Since 3.6, a server ends a session with one transaction that lists all the session's nodes. The server writes a
 * transaction of any size but can't read one larger than `jute.maxbuffer` plus `jute.maxbuffer.extrasize`, 2 MB by
 * default. If it is larger, followers leave the leader, the service stops, and a restarted server fails with
 * `Unreasonable length` (ZOOKEEPER-4306): one crashed process with 25,000 locks took down an ensemble. This limit is
 * below `jute.maxbuffer` alone.
 */
const MOST_PATH_BYTES = 900_000;

/** Creates a client that does nothing until `connect` is called. */
export type ClientFactory = (listener: ClientListener) => SocketClient;

/** One application's locks: its session (one at a time) and the requests that hold or await locks. */
export class ZooKeeperBackend implements LockBackend<ZooKeeperRequest> {
  readonly capabilities: LockCapabilities;
  readonly casStore: CasStore;
  readonly records: RecordStore;
  /** 0, because the session's heartbeats check the connection even while idle. */
  readonly commandTimeout = 0;
  /** Private, because `util.inspect` would show the credentials. */
  readonly #settings: ZooKeeperSettings;
  readonly #shared: RequestContext;
  readonly #paths: LockPaths;
  readonly #operatorView: OperatorView;
  /** Requests that may still have a node on the servers. */
  readonly #requests = new Set<ZooKeeperRequest>();
  /** The requests' total path size. */
  #pathBytes = 0;
  #endConnect: ((isUp: boolean) => void) | undefined;
  /** While false, the core learns about the connection from the result of `connect`. */
  #hasConnected = false;
  #isClosing = false;
  /** The last refusal that was logged or thrown. Reset after a session that lived long enough. */
  #reported: string | undefined;
  #openedAt = 0;
  /** How many sessions in a row ended before their timeout. */
  #shortSessions = 0;
  #retry: Timer | undefined;

  constructor(
    private readonly context: BackendContext,
    settings: ZooKeeperSettings,
    private readonly makeClient: ClientFactory,
  ) {
    this.#settings = settings;
    this.capabilities = {
      shared: settings.recipe === 'read-write',
      limits: true,
      fair: true,
      fencing: true,
      lease: 'session',
      minHold: false,
      forceRelease: true,
      list: true,
    };
    this.#paths = new LockPaths(settings.root, context.namespace);
    this.#shared = new RequestContext(context, settings.recipe === 'mutex' ? mutex : readWrite);
    this.#operatorView = new OperatorView(this.#shared, this.#paths);
    this.records = new ZooKeeperRecords(this.#shared, this.#paths, this.#paths.jobs);
    const epochs = new ZooKeeperRecords(this.#shared, this.#paths, this.#paths.failovers);
    this.casStore = {
      compareAndSet: async (name, expected, next) => (await epochs.replace(name, expected, next)).value,
    };
  }

  /**
   * @throws LockUnavailableError if no session is up after 5 s or the session timeout; reconnecting continues in the
   * background
   * @throws LockConfigError if the TLS options are invalid, or an ACL denies a permission that locks need
   */
  async connect(): Promise<void> {
    const isUp = new Promise<boolean>((resolve) => (this.#endConnect = resolve));
    this.#open();
    const isInTime = await withTimeout(this.context.clock, startTimeoutOf(this.#settings), isUp, () => false);
    this.#hasConnected = true;
    if (isInTime) return;
    const { name: provider } = this.context;
    const { trouble: cause } = this.#shared;
    const words = cause instanceof Error ? cause.message : '';
    this.#reported = words;
    if (isFailure(cause, 'misconfigured')) {
      throw new LockConfigError(`Lock provider "${provider}" cannot connect to ZooKeeper. ${words}`, {
        provider,
        cause,
      });
    }
    const message = isFailure(cause, 'refused')
      ? `Lock provider "${provider}" cannot use ZooKeeper: ${words}`
      : `Lock provider "${provider}" cannot reach ZooKeeper. Check connectString, auth, and ACLs, and that a quorum is up. ${words}`.trimEnd();
    throw this.#shared.errorOf(message, undefined, cause);
  }

  acquire(request: AcquireRequest<ZooKeeperRequest>): Promise<Grant | 'busy'> {
    if (request.state) return request.state.acquire();
    const own: ZooKeeperRequest = new ZooKeeperRequest(this.#shared, request, this.#paths.folderOf(request.key), () => {
      if (!this.#requests.delete(own)) return;
      this.#pathBytes -= own.pathBytes;
      request.state = undefined;
    });
    if (this.#pathBytes + own.pathBytes > MOST_PATH_BYTES) return Promise.reject(this.#noRoom(request.key));
    this.#pathBytes += own.pathBytes;
    this.#requests.add(own);
    request.state = own;
    return own.acquire();
  }

  unansweredFor(): number {
    return this.#shared.session.unansweredFor;
  }

  heldBy(request: AcquireRequest<ZooKeeperRequest>): Holding | null {
    const seen = this.#shared.holders.heldBy(request);
    return seen && request.state?.watchesHolder ? { ...seen, seenAt: this.context.clock.now() } : seen;
  }

  async renew({ state }: AcquireRequest<ZooKeeperRequest>): Promise<RenewOutcome> {
    return state?.renew() ?? 'lost';
  }

  async release({ state }: AcquireRequest<ZooKeeperRequest>): Promise<ReleaseOutcome> {
    return state?.release() ?? 'lost';
  }

  inspect(key: string): Promise<LockInfo | null> {
    return this.#operatorView.inspect(key);
  }

  forceRelease(key: string): Promise<boolean> {
    return this.#operatorView.forceRelease(key);
  }

  list(query: { readonly prefix: string }): AsyncIterable<LockInfo> {
    return this.#operatorView.list(query);
  }

  /** Finds settings that weaken the guarantee, as far as a client can see them. */
  diagnose(): Promise<readonly Diagnostic[]> {
    const { sessionTimeout } = this.#settings;
    const { client, lifetime } = this.#shared.session;
    const messages: string[] = [];
    if (lifetime.timeout !== sessionTimeout) {
      messages.push(
        `ZooKeeper set the session timeout to ${lifetime.timeout} ms instead of ${sessionTimeout} ms, so locks held by a crashed process stay busy for that long. ` +
          'Change sessionTimeout, or minSessionTimeout and maxSessionTimeout on the servers.',
      );
    }
    if (client.addresses === 1) {
      messages.push(
        'connectString resolves to a single server. While it is down, locks cannot be acquired. List all servers in an ensemble of at least three, or a host name that resolves to all of them.',
      );
    }
    return Promise.resolve(messages.map((message) => ({ severity: 'warning', message })));
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    if (this.#retry) this.context.clock.clearTimer(this.#retry);
    // `connect` was never called.
    if (!this.#endConnect) return;
    this.#endConnect(false);
    const { session } = this.#shared;
    if (session.isUp) await this.#releaseAll(session);
    await session.close(CLOSE_TIMEOUT);
    // Respond to every caller that is still waiting.
    await Promise.all(Array.from(this.#requests, (own) => own.release()));
  }

  // --- Called by the session ---

  /** The session is connected and has been proven alive, for the first time or after an interruption. */
  onUp(): void {
    this.#shared.trouble = undefined;
    this.#shared.refusedSince = undefined;
    this.#endConnect?.(true);
    // Do this first, so that holds are renewed before any waiter sends a request.
    if (this.#hasConnected) this.context.emit({ type: 'recovered' });
    for (const own of this.#requests) own.recheck();
    this.onPatrol();
  }

  /** The session isn't connected, or couldn't create its own node. Called again for each new cause. */
  onDown(cause: unknown): void {
    const isFirst = this.#shared.trouble === undefined;
    this.#shared.trouble = cause;
    if (isFailure(cause, 'misconfigured') || (cause instanceof ZooKeeperFailure && cause.isDefinite)) {
      this.#endConnect?.(false);
    }
    if (this.#isClosing || !this.#hasConnected) return;
    if (isFirst) this.context.emit({ type: 'unavailable', cause });
    if (!isFailure(cause, 'refused', 'misconfigured') || this.#reported === cause.message) return;
    this.#reported = cause.message;
    // The core logs the first cause of an outage, but servers often reject us only after closing the connection.
    if (!isFirst) this.context.logger.warn(`Lock provider "${this.context.name}": ${safeText(cause.message)}`);
  }

  /** A server has taken the session over with a shorter timeout. */
  onShortened(): void {
    const message = 'A ZooKeeper server shortened the session timeout. Set the same maxSessionTimeout on all servers.';
    this.#loseAll(new Error(message));
  }

  /** The session and all its nodes are gone. */
  onExpired(): void {
    if (this.#isClosing) return;
    const cause = new Error('The ZooKeeper session has expired.');
    this.#loseAll(cause);
    const round = this.#endSession();
    if (round === 0) {
      this.#open();
    } else {
      this.#shared.trouble ??= cause;
      this.#openLater(backOff(this.context.random, round - 1, EXPIRED));
    }
  }

  /** The servers rejected our credentials, so the session has ended for us. Its nodes remain until it times out. */
  onRefused(cause: Error): void {
    if (this.#isClosing) return;
    const round = this.#endSession();
    this.#shared.refusedSince ??= this.context.clock.now();
    this.onDown(cause);
    this.#loseAll(cause);
    this.#openLater(backOff(this.context.random, round, REFUSED));
    this.#endConnect?.(false);
  }

  /** Called twelve times per timeout while the session is up, to retry unfinished work. */
  onPatrol(): void {
    void this.#shared.pendingRemovals.retry();
    void this.#shared.folders.sweep(this.#shared.session, this.context.clock.now());
  }

  /** Whether any request holds or awaits a lock, so the session must be kept alive. */
  get isNeeded(): boolean {
    return this.#requests.size > 0;
  }

  /** Opens a session, which replaces the one that has ended. */
  #open(): void {
    const { sessionTimeout } = this.#settings;
    const session = new Session(this.makeClient, sessionTimeout, this.#paths.sessions, this.context, this);
    this.#shared.session = session;
    this.#openedAt = this.context.clock.now();
    session.open();
  }

  #openLater(delay: number): void {
    const open = () => {
      this.#open();
    };
    this.#retry = this.context.clock.setTimer(open, delay, true);
    // Wake the waiters: they have lost their positions in the queue, and their callers can now be told why.
    for (const own of this.#requests) own.recheck();
  }

  /** Returns how many sessions in a row ended before their timeout, not counting this one. */
  #endSession(): number {
    const isShort = this.context.clock.now() - this.#openedAt < this.#shared.session.lifetime.timeout;
    if (!isShort) this.#reported = undefined;
    const round = isShort ? this.#shortSessions : 0;
    this.#shortSessions = round + 1;
    return round;
  }

  /** Releases locks explicitly, because the end of the session would leave the folders behind. */
  async #releaseAll(session: Session): Promise<void> {
    const releases = Array.from(this.#requests, (own) => own.release());
    const released = Promise.all(releases).then(() => this.#shared.folders.close(session));
    await withTimeout(this.context.clock, CLOSE_TIMEOUT, released);
  }

  #noRoom(key: string): LockCapacityError {
    const { name } = this.context;
    return new LockCapacityError(
      `Lock "${key}" was not acquired, because this process already holds or waits for ${this.#requests.size} keys of provider "${name}". If it crashed with more, ` +
        'the ZooKeeper servers could not close its session. Hold fewer keys at a time, or distribute them across more processes.',
      { key, provider: name },
    );
  }

  #loseAll(cause: Error): void {
    for (const own of this.#requests) own.lose(cause);
  }
}
