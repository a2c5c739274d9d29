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

/** The reports of a session. */
export interface SessionListener {
  /** The session is connected and proved to live: at first, and after each interruption. */
  onUp(session: Session): void;
  /** The session is not connected, or may not create its own node. Called again for each further reason. */
  onDown(session: Session, cause: unknown): void;
  /** The session is over, and all its nodes are gone. */
  onExpired(session: Session): void;
  /** The session is over for us: the servers refuse our credentials. Its nodes stay until its timeout. */
  onRefused(session: Session, cause: Error): void;
  /** Called a dozen times in each timeout while it is up: for work that has to be tried again. */
  onPatrol(session: Session): void;
  /** Whether a request holds or waits, so that the lifetime of the session has to be known. */
  isNeeded(): boolean;
}

// In parts of the timeout that the server has granted. A silent connection is noticed when one patrol finds silence
// (up to a sixth) and probes, and another finds no answer (up to a quarter and a twelfth): after a half. How often we send something also
// decides how long the session is guaranteed to live: see SessionLifetime.
const PATROL = 1 / 12;
const SILENCE = 1 / 12;
const ANSWER_TIMEOUT = 1 / 4;
/** How often the client is asked whether it tries a server for too long, in ms. */
const TRY_PATROL = 50;
/** After so many timeouts without a connection the session is given up: see the patrol. */
const GIVEN_UP = 3;
/** The same for one that was never up: nothing is held by it. */
const GIVEN_UP_UNUSED = 1;
/** The longest pause before the session's own node is created once more, in ms, after servers have refused to. */
const LONGEST_PAUSE = 5_000;
/** How old the last acknowledged write may become while a request holds or waits. */
const WRITE_AGE = 1 / 4;

/**
 * One session of ZooKeeper, from its opening to its end. Each backend has one at a time; everything of an older session is gone.
 *
 * Every request to its client settles: it is answered, or fails as `unanswered` when the connection breaks. Silence breaks it too.
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
  /** Since when there is no connection, after there was one. */
  #downSince = 0;
  /** How often in a row the servers have refused to create the session's own node, and when that is tried once more. */
  #refusals = 0;
  #prepareAt = -Infinity;
  #patrolledAt: number;
  #patrolTimer: Timer | undefined;

  /** @param beats the folder of the nodes that sessions write their heartbeats to. */
  constructor(
    private readonly makeClient: ClientFactory,
    private readonly wantedTimeout: number,
    private readonly beats: string,
    private readonly clock: Clock,
    private readonly listener: SessionListener,
    /** Whether it makes no folders. Without the folder of the heartbeats nobody has locks, and it needs no node of its own. */
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

  /** A new one in the same place, not open. */
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

  /** For how many ms the servers have not answered a request, or nothing was heard before the connection was lost. */
  get unansweredFor(): number {
    const now = this.clock.now();
    const { silentSince, heardAt } = this.client;
    return now - (this.isUp ? (silentSince ?? now) : heardAt);
  }

  get isOver(): boolean {
    return this.#state === 'over';
  }

  /** Changes with every connection: watches that were set on an earlier one are gone. */
  get connection(): number {
    return this.#connections;
  }

  /** The timeout that the server has granted, in ms; before the first connection, the one that was asked for. */
  get timeout(): number {
    return this.#lifetime.timeout;
  }

  get id(): bigint {
    return this.client.sessionId;
  }

  /** How long a lock is valid without another write, in ms. */
  get lease(): number {
    return this.#lifetime.lease;
  }

  /** Until when the session is guaranteed to live, and its locks with it. */
  get validUntil(): number {
    return this.#lifetime.validUntil;
  }

  /**
   * Creates a persistent node and its parents, as far as they are missing.
   *
   * @param data the content of the node; default: the instance that makes it
   */
  async makePath(path: string, data?: Buffer): Promise<void> {
    const parts = path.split('/').slice(1);
    const paths = parts.map((_, index) => `/${parts.slice(0, index + 1).join('/')}`);
    const made = paths.map((each) => this.client.create(each, 'persistent', each === path ? data : undefined));
    const failures = (await Promise.allSettled(made)).map((outcome) =>
      outcome.status === 'rejected' ? (outcome.reason as unknown) : undefined,
    );
    // The parents may exist without our right to write to them. Only the last node counts, and the reason why it could not be created.
    const last = failures.at(-1);
    if (isFailure(last, 'no-node')) throw failures.find((failure) => isFailure(failure, 'refused')) ?? last;
    if (last !== undefined && !isFailure(last, 'exists')) throw last;
  }

  /**
   * Proves that the session lives, by a write that is sent after this call, and answers when that was: by the clock of the leader, in ms since
   * 1970. Callers that ask at the same time share one.
   */
  heartbeat(): Promise<number> {
    if (!this.isUp) return Promise.reject(noConnection());
    return this.#heartbeats.next();
  }

  /** Ends it: immediately if the server answers within `timeout` ms, else when the server has waited for the timeout of the session. */
  async close(timeout: number): Promise<void> {
    this.#end();
    await withTimeout(this.clock, timeout, this.client.close());
    this.client.abandon();
  }

  /** For how long the machine has slept since it was booted, in ms, plus a constant. */
  get #asleep(): number {
    return this.clock.uptime() - this.clock.now();
  }

  get #node(): string {
    return `${this.beats}/${this.id.toString(16).padStart(16, '0')}`;
  }

  // --- reports of the client ---

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
    // The server greeted us after the change before this one.
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

  /** Creates the session's own node. Without it there are no heartbeats, and so no locks. */
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
        // An earlier call created it, and its answer was lost.
        if (!isFailure(error, 'exists')) throw error;
      })
      .then(
        () => {
          if (this.#state !== 'connecting' || !this.#isConnected) return;
          this.#up();
        },
        (error: unknown) => {
          // The client reports why a connection is lost.
          if (this.#state !== 'connecting' || !this.#isConnected) return;
          if (isFailure(error, 'refused')) {
            const delay = Math.min(this.timeout * PATROL * 2 ** this.#refusals, LONGEST_PAUSE);
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
      // An operator has removed it.
      if (!isFailure(error, 'no-node')) throw error;
      // That too was an answer of the leader, without its time. An observer begins no runs, so its own clock will do.
      if (this.isObserver) return this.clock.wallTime();
      await this.makePath(this.beats);
      await this.client.create(node, 'ephemeral');
      return await this.client.write(node);
    }
  }

  readonly #patrol = (): void => {
    if (this.#state === 'over') return;
    const often = this.#isConnected ? Infinity : TRY_PATROL;
    this.#patrolTimer = this.clock.setTimer(this.#patrol, Math.min(this.timeout * PATROL, often));
    const now = this.clock.now();
    // After a blocked event loop the answers may be there, and be read next.
    const isLate = now - this.#patrolledAt > 2 * PATROL * this.timeout;
    this.#patrolledAt = now;
    if (isLate) return;
    // Half-open: TCP would find out after minutes. A slow server answers at least something, in the order of the
    // requests; a server without a leader answers nothing after a write.
    const { silentSince, heardAt } = this.client;
    if (now - (silentSince ?? now) >= this.timeout * ANSWER_TIMEOUT) {
      this.#reconnect(now);
      return;
    }
    if (!this.#isConnected) {
      // Servers silently refuse a client that has seen more than they have. If the servers have lost their data, they refuse this
      // session permanently; nothing is held by it any more.
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
