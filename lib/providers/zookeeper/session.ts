import type { Clock, Timer } from '../../api/clock.js';
import { withTimeout } from '../../core/toolkit/timing.js';
import { Heartbeats } from './heartbeats.js';
import { SessionLifetime } from './session-lifetime.js';
import {
  type ClientFactory,
  type ClientListener,
  isFailure,
  noConnection,
  type ZooKeeperClient,
  type ZooKeeperFailure,
} from './zookeeper-client.js';

export interface SessionListener {
  /** The session is connected and has been proven alive, for the first time or after an interruption. */
  onUp(session: Session): void;
  /** The session isn't connected, or couldn't create its own node. Called again for each new cause. */
  onDown(session: Session, cause: unknown): void;
  /** The session and all its nodes are gone. */
  onExpired(session: Session): void;
  /** The servers rejected our credentials, so the session has ended for us. Its nodes remain until it times out. */
  onRefused(session: Session, cause: Error): void;
  /** Called twelve times per timeout while the session is up, to retry unfinished work. */
  onPatrol(session: Session): void;
  /** Whether any request holds or awaits a lock, so the session must be kept alive. */
  isNeeded(): boolean;
}

// These are fractions of the granted timeout. A dead connection is detected after half a timeout: one patrol notices the
// silence (1/6) and sends a probe, and a later one notices that the probe wasn't answered (1/4 + 1/12). These intervals
// also determine the guaranteed lifetime; see SessionLifetime.
const PATROL = 1 / 12;
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
  readonly client: ZooKeeperClient;
  readonly #lifetime: SessionLifetime;
  readonly #heartbeats: Heartbeats;
  #state: 'connecting' | 'up' | 'down' | 'over' = 'connecting';
  #isConnected = false;
  #connections = 0;
  #writtenAt = -Infinity;
  #changedAt: number;
  /** When the last connection was lost, if any. */
  #downSince = 0;
  /** How many times in a row the servers have refused to create the session's own node, and when to try again. */
  #refusals = 0;
  #prepareAt = -Infinity;
  #patrolledAt: number;
  #patrolTimer: Timer | undefined;

  /** @param beats the folder of the session nodes, to which heartbeats are written */
  constructor(
    private readonly makeClient: ClientFactory,
    private readonly wantedTimeout: number,
    private readonly beats: string,
    private readonly clock: Clock,
    private readonly listener: SessionListener,
    /**
     * An observer doesn't create folders: if the heartbeat folder is missing, no process holds locks, and the observer doesn't need a node.
     */
    private readonly isObserver: boolean,
  ) {
    this.#lifetime = new SessionLifetime(wantedTimeout);
    this.#heartbeats = new Heartbeats(
      clock,
      () => this.timeout,
      () => this.#beat(),
    );
    this.#changedAt = clock.now();
    this.#patrolledAt = this.#changedAt;
    this.client = makeClient(this);
  }

  /** Creates a new session with the same settings, not yet open. */
  another(): Session {
    return new Session(this.makeClient, this.wantedTimeout, this.beats, this.clock, this.listener, this.isObserver);
  }

  open(): void {
    this.#patrol();
    this.client.connect();
  }

  get isUp(): boolean {
    return this.#state === 'up';
  }

  /**
   * How long requests have gone unanswered, in ms, or, without a connection, the time since the last message from the servers.
   */
  get unansweredFor(): number {
    const now = this.clock.now();
    const { silentSince, heardAt } = this.client;
    return now - (this.isUp ? (silentSince ?? now) : heardAt);
  }

  get isOver(): boolean {
    return this.#state === 'over';
  }

  /** Changes with every connection, because a new connection ends the previous one's watches. */
  get connection(): number {
    return this.#connections;
  }

  /** The granted timeout in ms, or the requested one before the first connection. */
  get timeout(): number {
    return this.#lifetime.timeout;
  }

  get id(): bigint {
    return this.client.sessionId;
  }

  /** How long a lock stays valid without another write, in ms. */
  get lease(): number {
    return this.#lifetime.lease;
  }

  /** When the guaranteed lifetime of the session and its locks ends. */
  get validUntil(): number {
    return this.#lifetime.validUntil;
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

  /**
   * Proves that the session is alive with a write sent after this call. Resolves to the time of that write by
   * the leader's clock. Concurrent callers share one write.
   */
  heartbeat(): Promise<number> {
    if (!this.isUp) return Promise.reject(noConnection());
    return this.#heartbeats.next();
  }

  /** Ends the session. If no server responds within `timeout` ms, the session ends when it times out. */
  async close(timeout: number): Promise<void> {
    this.#end();
    await withTimeout(this.clock, timeout, this.client.close());
    this.client.abandon();
  }

  /** How long the machine has slept since boot, in ms, plus a constant. */
  get #asleep(): number {
    return this.clock.uptime() - this.clock.now();
  }

  get #node(): string {
    return `${this.beats}/${this.id.toString(16).padStart(16, '0')}`;
  }

  // --- ClientListener ---

  onSent(at: number, isWrite: boolean): void {
    this.#lifetime.sent(at, this.#asleep);
    if (isWrite) this.#writtenAt = at;
  }

  onWritten(sentAt: number): void {
    this.#lifetime.confirm(sentAt);
  }

  onConnected(): void {
    this.#isConnected = true;
    this.#connections += 1;
    this.#lifetime.timeout = this.client.sessionTimeout;
    // The leader has heard from the session since the last connection change.
    this.#lifetime.connected(this.#changedAt, this.#asleep);
    this.#changedAt = this.clock.now();
    if (this.#state === 'down') this.#up();
    else this.#prepare();
  }

  onDisconnected(cause: ZooKeeperFailure): void {
    if (this.#state === 'over') return;
    this.#changedAt = this.clock.now();
    if (this.#isConnected) this.#downSince = this.#changedAt;
    this.#isConnected = false;
    if (this.#state === 'up') this.#state = 'down';
    this.listener.onDown(this, cause);
  }

  onExpired(): void {
    this.#end();
    this.client.abandon();
    this.listener.onExpired(this);
  }

  onRefused(cause: Error): void {
    this.#end();
    this.client.abandon();
    this.listener.onRefused(this, cause);
  }

  #up(): void {
    this.#state = 'up';
    this.listener.onUp(this);
  }

  /** Creates the session's own node. Without it, there are no heartbeats or locks. */
  #prepare(): void {
    const node = this.#node;
    const make = () => this.client.create(node, 'ephemeral');
    make()
      .catch((error: unknown) => {
        if (!isFailure(error, 'no-node')) throw error;
        if (this.isObserver) return;
        return this.makePath(this.beats).then(make);
      })
      .catch((error: unknown) => {
        // The node was created by an earlier attempt whose reply was lost.
        if (!isFailure(error, 'exists')) throw error;
      })
      .then(
        () => {
          if (this.#state !== 'connecting' || !this.#isConnected) return;
          this.#up();
        },
        (error: unknown) => {
          // If the connection was lost, the client reports why.
          if (this.#state !== 'connecting' || !this.#isConnected) return;
          if (isFailure(error, 'refused')) {
            const delay = Math.min(this.timeout * PATROL * 2 ** this.#refusals, MAX_REFUSAL_DELAY_MS);
            this.#prepareAt = this.clock.now() + delay;
            this.#refusals += 1;
          }
          this.listener.onDown(this, error);
        },
      );
  }

  async #beat(): Promise<number> {
    const node = this.#node;
    try {
      return await this.client.write(node);
    } catch (error) {
      // An operator removed the node.
      if (!isFailure(error, 'no-node')) throw error;
      // This error, too, came from the leader, but it lacks the leader's time. An observer doesn't start jobs, so its own clock
      // is good enough.
      if (this.isObserver) return this.clock.wallTime();
      await this.makePath(this.beats);
      await this.client.create(node, 'ephemeral');
      return await this.client.write(node);
    }
  }

  readonly #patrol = (): void => {
    if (this.#state === 'over') return;
    const often = this.#isConnected ? Infinity : ATTEMPT_PATROL_MS;
    this.#patrolTimer = this.clock.setTimer(this.#patrol, Math.min(this.timeout * PATROL, often));
    const now = this.clock.now();
    // If the event loop was blocked, responses may be waiting to be read.
    const isLate = now - this.#patrolledAt > 2 * PATROL * this.timeout;
    this.#patrolledAt = now;
    if (isLate) return;
    // The connection may be half-open, which TCP would notice only after minutes. A slow server still sends some
    // responses, because they come in order; a server without a leader sends none after a write.
    const { silentSince, heardAt } = this.client;
    if (now - (silentSince ?? now) >= this.timeout * ANSWER_TIMEOUT) {
      this.#reconnect(now);
      return;
    }
    if (!this.#isConnected) {
      // Servers silently reject a client that has seen later changes than they have. If they have lost their data, they
      // will do so forever, so give up. By then, the session no longer holds any locks.
      const timeout = this.timeout * (this.#state === 'down' ? GIVEN_UP : GIVEN_UP_UNUSED);
      if (this.#connections > 0 && now - this.#downSince >= timeout) this.onExpired();
      else if (now >= (this.client.tryUntil ?? Infinity)) this.#reconnect(now);
      return;
    }
    const isQuiet = silentSince === undefined && now - heardAt >= this.timeout * SILENCE;
    if (this.#state === 'connecting') {
      if (silentSince === undefined && now >= this.#prepareAt) this.#prepare();
      else if (isQuiet) this.client.stat(this.#node).catch(() => undefined);
      return;
    }
    if (this.listener.isNeeded() && now - this.#writtenAt >= this.timeout * WRITE_AGE) {
      this.heartbeat().catch(() => undefined);
    } else if (isQuiet) {
      this.client.stat(this.#node).catch(() => undefined);
    }
    this.listener.onPatrol(this);
  };

  #reconnect(now: number): void {
    this.#changedAt = now;
    this.client.reconnect();
  }

  #end(): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    this.#isConnected = false;
    if (this.#patrolTimer) this.clock.clearTimer(this.#patrolTimer);
    this.#heartbeats.end();
  }
}
