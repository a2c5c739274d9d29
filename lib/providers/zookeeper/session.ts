import type { Timer } from '../../api/clock.js';
import type { BackendContext } from '../../api/lock-provider.js';
import { pause, withTimeout } from '../../core/toolkit/timing.js';
import { SessionLifetime } from './session-lifetime.js';
import type { ClientListener, NodeKind, SocketClient } from './socket-client.js';
import type { ClientFactory, ZooKeeperBackend } from './zookeeper-backend.js';
import { isFailure, noConnection, type ZooKeeperFailure } from './zookeeper-failure.js';

// These are fractions of the granted timeout. A dead connection is detected after half a timeout: one patrol notices
// the silence (1/6) and sends a probe, and a later one notices that the probe wasn't answered (1/4 + 1/12). These
// intervals also determine the guaranteed lifetime; see SessionLifetime.
const PATROL = 1 / 12;
/** The minimum interval between two heartbeats. */
const HEARTBEAT = 1 / 100;
const SILENCE = 1 / 12;
const ANSWER_TIMEOUT = 1 / 4;
/** How often to check whether a connection attempt is taking too long. */
const ATTEMPT_PATROL_MS = 50;
/** After this many timeouts without a connection, the session counts as expired. `#patrol` explains why. */
const GIVEN_UP = 3;
/** The same limit for a session that was never up and therefore holds nothing. */
const GIVEN_UP_UNUSED = 1;
/** The maximum delay before retrying a refused attempt to create the session's own node. */
const MAX_REFUSAL_DELAY_MS = 5_000;
/** The maximum age of the last acknowledged write while any request holds or awaits a lock. */
const WRITE_AGE = 1 / 4;

/**
 * One ZooKeeper session, from open to end. A backend has one at a time, and nothing survives from earlier ones.
 *
 * Every request to the client settles: it is answered, or fails as `unanswered` when the connection is lost or silent
 * for too long.
 */
export class Session implements ClientListener {
  readonly client: SocketClient;
  readonly lifetime: SessionLifetime;
  /** Until the session's own node exists, it is `connecting` without a connection, and `preparing` with one. */
  #state: 'connecting' | 'preparing' | 'up' | 'down' | 'over' = 'connecting';
  /** Changes with every connection, because a new connection ends the previous one's watches. */
  connection = 0;
  #writtenAt = -Infinity;
  /** When the last connection was lost; 0 if none was. */
  #downSince = 0;
  /** How many times in a row the servers have refused to create the session's own node, and when to try again. */
  #refusals = 0;
  #prepareAt = -Infinity;
  #patrolledAt: number;
  #patrolTimer: Timer | undefined;
  #heartbeatAt = -Infinity;
  /** The heartbeat that is about to be sent. */
  #heartbeat: Promise<number> | undefined;
  readonly #ending = new AbortController();

  constructor(
    makeClient: ClientFactory,
    wantedTimeout: number,
    /** The folder of the session nodes, to which heartbeats are written. */
    private readonly beats: string,
    private readonly context: Pick<BackendContext, 'clock' | 'isObserver'>,
    private readonly backend: ZooKeeperBackend,
  ) {
    this.lifetime = new SessionLifetime(wantedTimeout);
    this.#patrolledAt = context.clock.now();
    this.lifetime.disconnected(this.#patrolledAt, this.#asleep);
    this.client = makeClient(this);
  }

  open(): void {
    this.#patrol();
    this.client.connect();
  }

  get isUp(): boolean {
    return this.#state === 'up';
  }

  /**
   * How long requests have gone unanswered, in ms, or, while the session isn't up, the time since the last message on
   * its last connection. Later messages don't count: if they refuse the session's own node, no waiter is queued.
   */
  get unansweredFor(): number {
    const now = this.context.clock.now();
    const { silentSince, heardAt } = this.client;
    return now - (this.isUp ? (silentSince ?? now) : Math.min(heardAt, this.#downSince));
  }

  get isOver(): boolean {
    return this.#state === 'over';
  }

  /**
   * Creates a persistent node and any missing parents.
   *
   * @param data the node's content; default: the creating instance
   */
  async makePath(path: string, data?: Buffer): Promise<void> {
    const parts = path.split('/').slice(1);
    const paths = parts.map((_, index) => `/${parts.slice(0, index + 1).join('/')}`);
    const made = paths.map((each) => this.client.create(each, 'persistent', each === path ? data : undefined));
    const failures = (await Promise.allSettled(made)).map((outcome) =>
      outcome.status === 'rejected' ? (outcome.reason as unknown) : undefined,
    );
    // We may lack permission to write to existing parents, so only a failure to create the last node matters.
    const last = failures.at(-1);
    if (isFailure(last, 'no-node')) throw failures.find((failure) => isFailure(failure, 'refused')) ?? last;
    if (last !== undefined && !isFailure(last, 'exists')) throw last;
  }

  /** Creates a node, and its parents if they are missing. */
  async createWithParents(path: string, kind: NodeKind, data?: Buffer): Promise<void> {
    try {
      await this.client.create(path, kind, data);
    } catch (error) {
      if (!isFailure(error, 'no-node')) throw error;
      await this.makePath(path.slice(0, path.lastIndexOf('/')));
      await this.client.create(path, kind, data);
    }
  }

  /**
   * Proves that the session is alive with a write sent after this call. Resolves to the time of that write by
   * the leader's clock. Concurrent callers share one write.
   */
  heartbeat(): Promise<number> {
    if (!this.isUp) return Promise.reject(noConnection());
    this.#heartbeat ??= this.#beat();
    return this.#heartbeat;
  }

  /** Ends the session. If no server responds within `timeout` ms, the session ends when it times out. */
  async close(timeout: number): Promise<void> {
    this.#end();
    await withTimeout(this.context.clock, timeout, this.client.close());
    this.client.abandon();
  }

  /** How long the machine has slept since boot, in ms, plus a constant. */
  get #asleep(): number {
    return this.context.clock.uptime() - this.context.clock.now();
  }

  get #node(): string {
    return `${this.beats}/${this.client.sessionId.toString(16).padStart(16, '0')}`;
  }

  // --- ClientListener ---

  onSent(at: number, isWrite: boolean): void {
    this.lifetime.sent(at, this.#asleep);
    if (isWrite) this.#writtenAt = at;
  }

  onWritten(sentAt: number): void {
    this.lifetime.confirm(sentAt);
  }

  onConnected(): void {
    this.connection += 1;
    const { sessionTimeout } = this.client;
    // The leader may now end the session before the deadlines of its holds, which only a renewal can change.
    if (this.#state === 'down' && sessionTimeout < this.lifetime.timeout) this.backend.onShortened();
    this.lifetime.timeout = sessionTimeout;
    if (this.#state === 'down') this.#up();
    else if (this.#state === 'connecting') {
      this.#state = 'preparing';
      this.#prepare();
    }
  }

  onDisconnected(cause: ZooKeeperFailure): void {
    if (this.#state === 'over') return;
    const now = this.context.clock.now();
    this.lifetime.disconnected(now, this.#asleep);
    if (this.#isConnected) this.#downSince = now;
    if (this.#state === 'up') this.#state = 'down';
    else if (this.#state === 'preparing') this.#state = 'connecting';
    this.backend.onDown(cause);
  }

  onExpired(): void {
    this.#end();
    this.client.abandon();
    this.backend.onExpired();
  }

  onRefused(cause: ZooKeeperFailure): void {
    this.#end();
    this.client.abandon();
    this.backend.onRefused(cause);
  }

  get #isConnected(): boolean {
    return this.#state === 'preparing' || this.#state === 'up';
  }

  #up(): void {
    this.#state = 'up';
    this.backend.onUp();
  }

  /** Creates the session's own node. Without it, there are no heartbeats or locks. */
  #prepare(): void {
    this.#makeNode().then(
      () => {
        if (this.#state === 'preparing') this.#up();
      },
      (error: unknown) => {
        // If the connection was lost, the client reports why.
        if (this.#state !== 'preparing') return;
        if (isFailure(error, 'refused')) {
          const delay = Math.min(this.lifetime.timeout * PATROL * 2 ** this.#refusals, MAX_REFUSAL_DELAY_MS);
          this.#prepareAt = this.context.clock.now() + delay;
          this.#refusals += 1;
        }
        this.backend.onDown(error);
      },
    );
  }

  async #makeNode(): Promise<void> {
    const { isObserver } = this.context;
    try {
      if (isObserver) await this.client.create(this.#node, 'ephemeral');
      else await this.createWithParents(this.#node, 'ephemeral');
    } catch (error) {
      // The node was created by an earlier attempt whose reply was lost.
      const isMade = isFailure(error, 'exists');
      // If the folder is missing, no process holds locks, and an observer doesn't need a node.
      if (!isMade && !(isObserver && isFailure(error, 'no-node'))) throw error;
    }
  }

  /** Sends a heartbeat, after a delay if the last one was sent recently. */
  async #beat(): Promise<number> {
    const { clock, isObserver } = this.context;
    const delay = this.#heartbeatAt + this.lifetime.timeout * HEARTBEAT - clock.now();
    if (delay > 0) await pause(clock, Math.ceil(delay), this.#ending.signal);
    else await Promise.resolve();
    this.#heartbeat = undefined;
    this.#heartbeatAt = clock.now();
    for (;;) {
      const writtenAt = await this.client.write(this.#node);
      if (writtenAt !== null) return writtenAt;
      // An operator removed the node. This answer, too, came from the leader, but it lacks the leader's time. An
      // observer doesn't start jobs, so its own clock is good enough.
      if (isObserver) return clock.wallTime();
      await this.#makeNode();
    }
  }

  readonly #patrol = (): void => {
    if (this.#state === 'over') return;
    const often = this.#isConnected ? Infinity : ATTEMPT_PATROL_MS;
    this.#patrolTimer = this.context.clock.setTimer(this.#patrol, Math.min(this.lifetime.timeout * PATROL, often));
    const now = this.context.clock.now();
    // If the event loop was blocked, responses may be waiting to be read.
    const isLate = now - this.#patrolledAt > 2 * PATROL * this.lifetime.timeout;
    this.#patrolledAt = now;
    if (isLate) return;
    // The connection may be half-open, which TCP would notice only after minutes. A slow server still sends some
    // responses, because they come in order; a server without a leader sends none after a write.
    const { silentSince, heardAt } = this.client;
    if (now - (silentSince ?? now) >= this.lifetime.timeout * ANSWER_TIMEOUT) {
      this.client.reconnect();
      return;
    }
    if (!this.#isConnected) {
      // Servers silently reject a client that has seen later changes than they have. If they have lost their data, they
      // will do so forever, so give up. By then, the session no longer holds any locks.
      const timeout = this.lifetime.timeout * (this.#state === 'down' ? GIVEN_UP : GIVEN_UP_UNUSED);
      if (this.connection > 0 && now - this.#downSince >= timeout) this.onExpired();
      else if (now >= (this.client.tryUntil ?? Infinity)) this.client.reconnect();
      return;
    }
    const isQuiet = silentSince === undefined && now - heardAt >= this.lifetime.timeout * SILENCE;
    if (this.#state === 'preparing') {
      if (silentSince === undefined && now >= this.#prepareAt) this.#prepare();
      else if (isQuiet) this.client.stat(this.#node).catch(() => undefined);
      return;
    }
    if (this.backend.isNeeded && now - this.#writtenAt >= this.lifetime.timeout * WRITE_AGE) {
      this.heartbeat().catch(() => undefined);
    } else if (isQuiet) {
      this.client.stat(this.#node).catch(() => undefined);
    }
    this.backend.onPatrol();
  };

  #end(): void {
    this.#state = 'over';
    if (this.#patrolTimer) this.context.clock.clearTimer(this.#patrolTimer);
    this.#ending.abort();
  }
}
