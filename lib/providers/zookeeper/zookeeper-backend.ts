import type {
  AcquireRequest,
  BackendContext,
  CasStore,
  Diagnostic,
  Grant,
  LockBackend,
  LockCapabilities,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import type { Timer } from '../../api/clock.js';
import { withTimeout } from '../../core/toolkit/timing.js';
import { LockCapacityError, LockUnavailableError } from '../../api/errors.js';
import type { ListedLock, LockInfo } from '../../api/lock-info.js';
import { ZooKeeperAttempt } from './attempt.js';
import { AttemptContext } from './attempt-context.js';
import { ZooKeeperCasStore } from './cas-store.js';
import { diagnose } from './diagnostics.js';
import { LockPaths } from './lock-path.js';
import { OperatorView } from './operator-view.js';
import { mutex, readWrite } from './recipe.js';
import { Session, type SessionListener } from './session.js';
import type { ClientFactory } from './zookeeper-client.js';
import type { ZooKeeperSettings } from './zookeeper-options.js';

// How long `connect` waits for its session, in ms. For a shorter session its timeout is enough.
const CONNECT_TIMEOUT = 5_000;
// How long `close` waits for the last answers, in ms: once for the releases, once for the end of the session.
const CLOSE_TIMEOUT = 2_000;
/** How long after servers have refused our credentials the next session is opened, in ms: one server may be misconfigured for a while. */
const REFUSED_FOR = 5_000;

/**
 * How many bytes the paths of the nodes of one session may have together.
 *
 * Since 3.6 a server ends a session by one transaction that names all its nodes. It writes one of any size, but reads none above
 * `jute.maxbuffer` and `jute.maxbuffer.extrasize` together, which is 2 MB by default. Then followers leave their leader, nobody serves, and a
 * server that is started again stops with `Unreasonable length` (ZOOKEEPER-4306): one crashed process with 25 000 locks ended an ensemble.
 * So the bound is below `jute.maxbuffer` alone.
 */
const MOST_PATH_BYTES = 900_000;

/** The locks of one application: one session at a time, and the attempts that hold or wait with it. */
export class ZooKeeperBackend implements LockBackend, SessionListener {
  readonly capabilities: LockCapabilities;
  readonly casStore: CasStore;
  /** Heartbeats watch the connection also while it is idle. */
  readonly commandTimeout = 0;
  /** Private, because `inspect` would show its credentials. */
  readonly #settings: ZooKeeperSettings;
  readonly #shared: AttemptContext;
  readonly #paths: LockPaths;
  readonly #operatorView: OperatorView;
  /** Those of which something may be left on the servers. */
  readonly #attempts = new Set<ZooKeeperAttempt>();
  /** Of the nodes of all attempts. */
  #pathBytes = 0;
  #hasSession = false;
  #endConnect: ((isUp: boolean) => void) | undefined;
  /** Before, the core learns of the connection by the outcome of `connect`. */
  #hasConnected = false;
  #isClosing = false;
  #trouble: unknown;
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
    this.#shared = new AttemptContext(context, settings.recipe === 'mutex' ? mutex : readWrite);
    this.#operatorView = new OperatorView(this.#shared, this.#paths);
    this.casStore = new ZooKeeperCasStore(this.#shared, this.#paths);
  }

  /** @throws LockUnavailableError when there is no session after 5 s, or its timeout; the reconnect goes on. */
  async connect(): Promise<void> {
    const isUp = await this.#openFirst();
    this.#hasConnected = true;
    if (isUp) return;
    const { name } = this.context;
    throw new LockUnavailableError(
      `Lock provider "${name}" cannot reach ZooKeeper: check its connectString, auth and ACLs, and that a quorum is up.`,
      { provider: name, cause: this.#trouble },
    );
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const known = this.#attemptOf(request);
    if (known) return known.acquire();
    const attempt: ZooKeeperAttempt = new ZooKeeperAttempt(
      this.#shared,
      request,
      this.#paths.folderOf(request.key),
      () => {
        if (this.#attempts.delete(attempt)) this.#pathBytes -= attempt.pathBytes;
      },
    );
    if (this.#pathBytes + attempt.pathBytes > MOST_PATH_BYTES) return Promise.reject(this.#noRoom(request.key));
    this.#pathBytes += attempt.pathBytes;
    this.#attempts.add(attempt);
    request.state = attempt;
    return attempt.acquire();
  }

  unansweredFor(): number {
    return this.#shared.session.unansweredFor;
  }

  async renew(request: AcquireRequest): Promise<RenewOutcome> {
    return this.#attemptOf(request)?.renew() ?? 'lost';
  }

  async release(request: AcquireRequest): Promise<ReleaseOutcome> {
    return this.#attemptOf(request)?.release() ?? 'lost';
  }

  inspect(key: string): Promise<LockInfo | null> {
    return this.#operatorView.inspect(key);
  }

  forceRelease(key: string): Promise<boolean> {
    return this.#operatorView.forceRelease(key);
  }

  list(query: { readonly prefix: string }): AsyncIterable<ListedLock> {
    return this.#operatorView.list(query);
  }

  diagnose(): Promise<Diagnostic[]> {
    return Promise.resolve(diagnose(this.#settings, this.#shared.session));
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    if (this.#retry) this.context.clock.clearTimer(this.#retry);
    this.#endConnect?.(false);
    if (!this.#hasSession) return;
    const { session } = this.#shared;
    if (session.isUp) await this.#releaseAll(session);
    await session.close(CLOSE_TIMEOUT);
    // Every caller that still waits gets an answer.
    await Promise.all(Array.from(this.#attempts, (attempt) => attempt.release()));
  }

  // --- reports of the session ---

  onUp(session: Session): void {
    this.#endConnect?.(true);
    // In this order: holds are renewed before any waiter asks.
    if (this.#hasConnected) this.context.emit({ type: 'recovered' });
    for (const attempt of this.#attempts) attempt.lookAgain();
    this.onPatrol(session);
  }

  onDown(_session: Session, cause: unknown): void {
    this.#trouble = cause;
    if (!this.#isClosing && this.#hasConnected) this.context.emit({ type: 'unavailable', cause });
  }

  onExpired(session: Session): void {
    if (this.#isClosing) return;
    this.#lose(session, new Error('The session of ZooKeeper has expired.'));
    this.#open(session.another());
  }

  onRefused(session: Session, cause: Error): void {
    if (this.#isClosing) return;
    this.onDown(session, cause);
    this.#lose(session, cause);
    this.#retry = this.context.clock.setTimer(() => {
      this.#open(session.another());
    }, REFUSED_FOR);
    this.#endConnect?.(false);
  }

  onPatrol(session: Session): void {
    void this.#shared.pendingRemovals.retry();
    void this.#shared.folders.sweep(session, this.context.clock.now());
  }

  isNeeded(): boolean {
    return this.#attempts.size > 0;
  }

  #attemptOf({ state }: AcquireRequest): ZooKeeperAttempt | undefined {
    return state instanceof ZooKeeperAttempt && this.#attempts.has(state) ? state : undefined;
  }

  /** Opens the first session. Resolves to whether it is up in time. */
  #openFirst(): Promise<boolean> {
    const { clock } = this.context;
    const { sessionTimeout } = this.#settings;
    const isUp = new Promise<boolean>((resolve) => (this.#endConnect = resolve));
    this.#open(new Session(this.makeClient, sessionTimeout, this.#paths.sessions, clock, this));
    return withTimeout(clock, Math.min(sessionTimeout, CONNECT_TIMEOUT), isUp, () => false);
  }

  #open(session: Session): void {
    this.#shared.session = session;
    this.#hasSession = true;
    session.open();
  }

  /** The end of the session would remove the nodes, but not their folders. */
  async #releaseAll(session: Session): Promise<void> {
    const releases = Array.from(this.#attempts, (attempt) => attempt.release());
    const released = Promise.all(releases).then(() => this.#shared.folders.close(session));
    await withTimeout(this.context.clock, CLOSE_TIMEOUT, released);
  }

  #noRoom(key: string): LockCapacityError {
    const { name } = this.context;
    return new LockCapacityError(
      `Lock "${key}" was not acquired. This process holds or waits for ${this.#attempts.size} keys of provider "${name}". If it crashed with more, ` +
        'the ZooKeeper servers could not read the transaction that ends its session. Hold fewer keys at a time, or spread them over more processes.',
      { key, provider: name },
    );
  }

  #lose(session: Session, cause: Error): void {
    for (const attempt of this.#attempts) if (attempt.isOf(session)) attempt.lose(cause);
  }
}
