import type { Clock } from '../../../api/clock.js';
import { LockCapacityError, LockError } from '../../../api/errors.js';
import { withAbort } from '../../../core/toolkit/abort-listeners.js';
import { pause } from '../../../core/toolkit/timing.js';
import type { Run } from './answer.js';
import type { SessionKind } from './dialect.js';
import { SilentServerError } from './failure.js';
import type { Server } from './server.js';
import type { Session } from './session.js';

/** The session kind and its limits. */
export interface SessionLimits extends SessionKind {
  readonly most: number;
  /** How many sessions are reserved for callers that already hold a lock. */
  readonly reserved: number;
}

/** A request for a connection. It waits until the signal aborts or, without a signal, for `wait` ms. */
export interface ConnectionRequest {
  readonly wait: number;
  readonly signal?: AbortSignal;
  readonly key?: string;
  /** Called if the request has to wait, with the error for callers that leave. */
  waits?(instead: LockError): void;
  /** How many locks of this provider the caller already holds. */
  readonly otherKeysHeld?: number;
}

/** A limited number of sessions of one kind, reused while they are fresh. */
export class Sessions {
  readonly slots: Slots;
  /** The idle sessions; the most recently used one is last. */
  readonly #idle: Session[] = [];
  #sweep: object | undefined;

  constructor(
    private readonly server: Server,
    private readonly limits: SessionLimits,
  ) {
    this.slots = new Slots(server.clock, limits.most, limits.reserved, (key) => this.#exhausted(key));
  }

  /**
   * Takes a session for one attempt.
   *
   * @throws LockCapacityError if all connections are in use for `wait` ms, or until the signal aborts
   */
  async take(request: ConnectionRequest): Promise<Session> {
    await this.slots.take(request);
    try {
      const session = this.#reuse(await this.server.control()) ?? (await this.server.open(this.limits));
      // If it was opened during a shutdown, the server has ended it.
      this.server.closing.throwIfAborted();
      session.onFree = (isReusable) => {
        if (isReusable && !this.server.closing.aborted) this.#keep(session);
        else if (isReusable) void session.close();
        this.slots.free();
      };
      return session;
    } catch (error) {
      this.slots.free();
      throw error;
    }
  }

  /** Runs a statement in autocommit, on a session used for nothing else. */
  readonly run: Run = async (sql, parameters) => {
    const session = await this.take({ wait: this.server.commandTimeout });
    try {
      const answer = await session.run(sql, parameters);
      session.giveBack();
      return answer;
    } catch (error) {
      // If the server returned an error, the statement had no effect. Otherwise, it may still be executed.
      if (this.server.dialect.isAnswer(error)) session.giveBack();
      // After an error from a read-only server, the next statement uses whichever server the address then points to.
      else session.destroy();
      throw error;
    }
  };

  /** Closes idle sessions. */
  async close(): Promise<void> {
    if (this.#sweep) this.server.clock.clearTimer(this.#sweep);
    await Promise.all(this.#idle.splice(0).map((session) => session.close()));
  }

  #exhausted(key: string | undefined): Error {
    // Without a key, each session is used for a single statement, so if none becomes free, the server isn't responding.
    if (key === undefined || this.server.isSilent) return new SilentServerError('The server did not respond in time.');
    const { name: provider } = this.server;
    return new LockCapacityError(
      `Lock "${key}" of provider "${provider}" was not acquired, because all ${this.limits.most} connections were in use. ` +
        'Raise maxConnections (and nestedConnections for nested locks), or hold fewer locks at a time.',
      { key, provider },
    );
  }

  /**
   * The most recently used session, if the current control session can end it. Undefined if another session has gone
   * silent since then: a NAT that drops idle connections drops them all, and each would cost its caller a timeout.
   */
  #reuse(control: Session): Session | undefined {
    for (let session = this.#idle.pop(); session; session = this.#idle.pop()) {
      if (session.control === control && session.answered >= this.server.silentSince) {
        session.onLost = undefined;
        return session;
      }
      void session.close();
    }
    return undefined;
  }

  #keep(session: Session): void {
    this.#idle.push(session);
    session.onLost = () => {
      this.#idle.splice(this.#idle.indexOf(session), 1);
      session.destroy();
    };
    this.#sweepLater();
  }

  /** Closes idle sessions before the server does, because it would count them as aborted clients. */
  #sweepLater(): void {
    const { clock } = this.server;
    const idleTime = this.limits.guard / 3;
    this.#sweep ??= clock.setTimer(() => {
      this.#sweep = undefined;
      const fresh = this.#idle.findIndex(({ answered }) => clock.now() - answered < idleTime);
      for (const session of this.#idle.splice(0, fresh < 0 ? this.#idle.length : fresh)) void session.close();
      if (this.#idle.length > 0) this.#sweepLater();
    }, idleTime);
  }
}

/**
 * A limited number of slots, granted in request order.
 *
 * A caller that holds a lock keeps its slot until its nested locks are done. If such callers had all the slots, none
 * could make progress. So the last `reserved` slots are for nested requests: the first `n` of them for callers that
 * hold `n` locks. Also, no waiter may keep the last slot open to a request, so free keys can be acquired while callers
 * wait for other keys.
 */
export class Slots {
  readonly #waiting = new Set<{ readonly limit: number; isServed: boolean; readonly end: AbortController }>();
  #used = 0;

  constructor(
    private readonly clock: Clock,
    private readonly most: number,
    private readonly reserved: number,
    /** Creates the error for a request that didn't get a slot. */
    private readonly exhausted: (key: string | undefined) => Error,
  ) {}

  /** Takes a slot. @throws the error created by `exhausted`, if none became free in time */
  async take(request: ConnectionRequest): Promise<void> {
    if (this.#used < this.#limitOf(request)) {
      this.#used += 1;
      return;
    }
    if (request.wait <= 0) throw this.exhausted(request.key);
    const waiter = { limit: this.#limitOf(request), isServed: false, end: new AbortController() };
    this.#waiting.add(waiter);
    const error = this.exhausted(request.key);
    if (LockError.is(error)) request.waits?.(error);
    // The signal is created when first read. It aborts once no callers are waiting, which may be later than `wait` says
    // if others have joined.
    const { signal } = request;
    const wait = () => pause(this.clock, signal ? Infinity : request.wait, waiter.end.signal);
    const leave = () => {
      waiter.end.abort();
    };
    await (signal ? withAbort(signal, leave, wait) : wait());
    this.#waiting.delete(waiter);
    if (!waiter.isServed) throw this.exhausted(request.key);
  }

  /** Whether a request may keep its slot while it waits for a lock. */
  mayWait(request: ConnectionRequest): boolean {
    return this.#used < Math.max(2, this.#limitOf(request));
  }

  free(): void {
    this.#used -= 1;
    for (const waiter of this.#waiting) {
      if (this.#used >= waiter.limit) continue;
      this.#used += 1;
      this.#waiting.delete(waiter);
      waiter.isServed = true;
      waiter.end.abort();
      return;
    }
  }

  #limitOf({ otherKeysHeld = 0 }: ConnectionRequest): number {
    return this.most - Math.max(0, this.reserved - otherKeysHeld);
  }
}
