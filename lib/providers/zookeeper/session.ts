import type { Clock, Timer } from '../../api/clock.js';
import { Calls } from './calls.js';
import { Heartbeats } from './heartbeats.js';
import { SureLife } from './sure-life.js';
import {
  type ClientFactory,
  type Creation,
  isFailure,
  type NodeKind,
  type NodeStat,
  type NodeValue,
  type ZooKeeperClient,
  ZooKeeperFailure,
} from './zookeeper-client.js';

/** What a session tells its provider. */
export interface SessionListener {
  /** It is connected and proved to live: at first, and after each break. */
  onUp(session: Session): void;
  onDown(session: Session, cause: unknown): void;
  /** It is over, and every node of it with it. */
  onExpired(session: Session): void;
  /** It is over for us: no server takes us for who we say that we are. Its nodes stay until its time-out. */
  onRefused(session: Session, cause: Error): void;
  /** Called a dozen times in each time-out while it is up: for what has to be tried again. */
  onPatrol(session: Session): void;
  /** Whether anybody holds or waits, so that the session's life has to be known. */
  isNeeded(): boolean;
}

// In parts of the time-out that the server has granted. A connection without a word is noticed after a patrol finds silence
// (up to a sixth), probes, and another finds no answer (up to a quarter and a twelfth): a half. How often we send something also
// decides how long the session is sure: see SureLife.
const PATROL = 1 / 12;
const SILENCE = 1 / 12;
const PATIENCE = 1 / 4;
/** How long a server may take to accept a connection and greet us, in ms, if that is less than the patience: of several, one may hang. */
const GREETED_WITHIN = 2_000;
/** After so many time-outs without a connection the session is given up: see the patrol. */
const GIVEN_UP = 3;
/** How old the last acknowledged write may become while somebody waits. */
const WRITE_AGE = 1 / 4;

/**
 * One session of ZooKeeper, from its opening to its end. Every provider has one at a time; what belongs to an older one is dead.
 *
 * Every call settles: answered, or failed as `unanswered` when the connection breaks, which silence does as well.
 */
export class Session {
  readonly #client: ZooKeeperClient;
  readonly #calls: Calls;
  readonly #life: SureLife;
  readonly #heartbeats: Heartbeats;
  #state: 'connecting' | 'up' | 'down' | 'over' = 'connecting';
  #isConnected = false;
  #connections = 0;
  #writtenAt = -Infinity;
  #changedAt: number;
  #downSince = 0;
  #patrolledAt: number;
  #patrolTimer: Timer | undefined;

  /** @param beats the folder of the nodes that sessions write their heartbeats to. */
  constructor(
    makeClient: ClientFactory,
    timeout: number,
    private readonly beats: string,
    private readonly clock: Clock,
    private readonly listener: SessionListener,
  ) {
    this.#life = new SureLife(timeout);
    this.#calls = new Calls(clock);
    this.#heartbeats = new Heartbeats(
      clock,
      () => this.timeout,
      () => this.#beat(),
    );
    this.#changedAt = clock.now();
    this.#patrolledAt = this.#changedAt;
    this.#client = makeClient({
      onConnected: () => {
        this.#onConnected();
      },
      onDisconnected: () => {
        this.#onDisconnected();
      },
      onExpired: () => {
        this.#expire();
      },
      onRefused: (cause) => {
        this.#end();
        this.#client.abandon();
        listener.onRefused(this, cause);
      },
    });
  }

  open(): void {
    this.#patrol();
    this.#client.connect();
  }

  get isUp(): boolean {
    return this.#state === 'up';
  }

  get isOver(): boolean {
    return this.#state === 'over';
  }

  /** Changes with every connection: watches that were set before are gone. */
  get connection(): number {
    return this.#connections;
  }

  /** The time-out that the server has granted, in ms; before, the one that was asked for. */
  get timeout(): number {
    return this.#life.timeout;
  }

  get id(): bigint {
    return this.#client.sessionId;
  }

  /** How long a lock is sure without another write, in ms. */
  get lease(): number {
    return this.#life.lease;
  }

  /** Until when the session surely lives, and the locks with it. */
  get validUntil(): number {
    return this.#life.validUntil;
  }

  create(path: string, kind: NodeKind, data?: Buffer): Promise<Creation> {
    return this.#write(() => this.#client.create(path, kind, data));
  }

  read(path: string): Promise<NodeValue | null> {
    return this.#call(() => this.#client.read(path));
  }

  replace(path: string, data: Buffer, version: number): Promise<void> {
    return this.#write(() => this.#client.replace(path, data, version));
  }

  remove(path: string): Promise<void> {
    return this.#write(() => this.#client.remove(path));
  }

  children(path: string): Promise<readonly string[]> {
    return this.#call(() => this.#client.children(path));
  }

  stat(path: string): Promise<NodeStat | null> {
    return this.#call(() => this.#client.stat(path));
  }

  watch(path: string, onChange: () => void): Promise<NodeStat | null> {
    return this.#call(() => this.#client.watch(path, onChange));
  }

  unwatch(path: string, onChange: () => void): void {
    this.#client.unwatch(path, onChange);
  }

  /** Makes a persistent node and those above it, as far as they are missing. */
  async makePath(path: string): Promise<void> {
    const parts = path.split('/').slice(1);
    const made = parts.map((_, index) => this.create(`/${parts.slice(0, index + 1).join('/')}`, 'persistent'));
    const failures = (await Promise.allSettled(made)).map((outcome) =>
      outcome.status === 'rejected' ? (outcome.reason as unknown) : undefined,
    );
    // Those above may be there and not ours to write to. What counts is the last, and what keeps it from being there.
    const last = failures.at(-1);
    if (isFailure(last, 'no-node')) throw failures.find((failure) => isFailure(failure, 'refused')) ?? last;
    if (last !== undefined && !isFailure(last, 'exists')) throw last;
  }

  /** Proves that the session lives, by a write that is sent after this call. Those who ask at the same time share one. */
  heartbeat(): Promise<void> {
    if (!this.isUp) return Promise.reject(noConnection());
    return this.#heartbeats.next();
  }

  /** Ends it: at once if the server answers within `patience` ms, else by its time-out. */
  async close(patience: number): Promise<void> {
    this.#end();
    let timer: Timer | undefined;
    const enough = new Promise<void>((resolve) => {
      timer = this.clock.setTimer(resolve, patience, true);
    });
    await Promise.race([this.#client.close(), enough]);
    if (timer) this.clock.clearTimer(timer);
    this.#client.abandon();
  }

  /** For how long the machine has slept since it was booted, in ms, and something that never changes. */
  get #asleep(): number {
    return this.clock.uptime() - this.clock.now();
  }

  get #node(): string {
    return `${this.beats}/${this.id.toString(16).padStart(16, '0')}`;
  }

  #onConnected(): void {
    this.#isConnected = true;
    this.#connections += 1;
    this.#life.timeout = this.#client.sessionTimeout;
    // It was greeted after the change before this one.
    this.#life.connected(this.#changedAt, this.#asleep);
    this.#changedAt = this.clock.now();
    this.#calls.heardAt = this.#changedAt;
    if (this.#state === 'down') this.#up();
    else this.#prepare();
  }

  #onDisconnected(): void {
    if (this.#state === 'over') return;
    this.#isConnected = false;
    this.#changedAt = this.clock.now();
    const failure = new ZooKeeperFailure('unanswered', 'The connection to ZooKeeper is lost.');
    this.#calls.fail(failure);
    if (this.#state !== 'up') return;
    this.#state = 'down';
    this.#downSince = this.#changedAt;
    this.listener.onDown(this, failure);
  }

  #up(): void {
    this.#state = 'up';
    this.listener.onUp(this);
  }

  /** Makes the session's own node. Without it there are no heartbeats, and so no locks. */
  #prepare(): void {
    const node = this.#node;
    const make = () => this.create(node, 'ephemeral');
    make()
      .catch((error: unknown) => {
        if (!isFailure(error, 'no-node')) throw error;
        return this.makePath(this.beats).then(make);
      })
      .catch((error: unknown) => {
        // Made before its answer was lost.
        if (!isFailure(error, 'exists')) throw error;
      })
      .then(
        () => {
          if (this.#state !== 'connecting' || !this.#isConnected) return;
          this.#up();
        },
        (error: unknown) => {
          if (this.#state === 'connecting') this.listener.onDown(this, error);
        },
      );
  }

  async #beat(): Promise<void> {
    const node = this.#node;
    try {
      await this.#write(() => this.#client.touch(node));
    } catch (error) {
      // Somebody tidied up.
      if (!isFailure(error, 'no-node')) throw error;
      await this.makePath(this.beats);
      await this.create(node, 'ephemeral');
    }
  }

  readonly #patrol = (): void => {
    if (this.#state === 'over') return;
    const often = this.#isConnected ? Infinity : GREETED_WITHIN / 3;
    this.#patrolTimer = this.clock.setTimer(this.#patrol, Math.min(this.timeout * PATROL, often));
    const now = this.clock.now();
    // After a blocked event loop the answers may be there, and be read next.
    const isLate = now - this.#patrolledAt > 2 * PATROL * this.timeout;
    this.#patrolledAt = now;
    if (isLate) return;
    // Half-open: the library never finds out by itself. A server that is slow answers at least something, in the order in which it was
    // asked; one without a leader answers nothing after a write.
    if (now - Math.max(this.#calls.oldest ?? now, this.#calls.heardAt) >= this.timeout * PATIENCE) {
      this.#reconnect(now);
      return;
    }
    if (!this.#isConnected) {
      // Servers refuse who has seen more than they have, without a word. If it is they who have lost their data, they refuse this
      // session for ever; nothing is held by it any more.
      if (this.#state === 'down' && now - this.#downSince >= this.timeout * GIVEN_UP) this.#expire();
      else if (now - this.#changedAt >= Math.min(this.timeout * PATIENCE, GREETED_WITHIN)) this.#reconnect(now);
      return;
    }
    if (this.#state === 'connecting') {
      if (this.#calls.oldest === undefined) this.#prepare();
      return;
    }
    if (this.listener.isNeeded() && now - this.#writtenAt >= this.timeout * WRITE_AGE) {
      this.heartbeat().catch(() => undefined);
    } else if (this.#calls.oldest === undefined && now - this.#calls.heardAt >= this.timeout * SILENCE) {
      this.stat(this.#node).catch(() => undefined);
    }
    this.listener.onPatrol(this);
  };

  #reconnect(now: number): void {
    this.#changedAt = now;
    this.#client.reconnect();
  }

  #expire(): void {
    this.#end();
    this.#client.abandon();
    this.listener.onExpired(this);
  }

  async #write<T>(send: () => Promise<T>): Promise<T> {
    const sentAt = this.clock.now();
    this.#writtenAt = sentAt;
    const answer = await this.#call(send);
    this.#life.confirm(sentAt);
    return answer;
  }

  #call<T>(send: () => Promise<T>): Promise<T> {
    if (!this.#isConnected || this.#state === 'over') return Promise.reject(noConnection());
    this.#life.sent(this.clock.now(), this.#asleep);
    return this.#calls.send(send);
  }

  #end(): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    this.#isConnected = false;
    if (this.#patrolTimer) this.clock.clearTimer(this.#patrolTimer);
    this.#heartbeats.end();
    this.#calls.fail(new ZooKeeperFailure('unanswered', 'The session of ZooKeeper is over.'));
  }
}

/** The failure of what was not even sent. */
export function noConnection(): ZooKeeperFailure {
  return new ZooKeeperFailure('unanswered', 'There is no connection to ZooKeeper.');
}
