import type { Clock } from '../../../api/clock.js';
import { LockCapacityError, LockError } from '../../../api/errors.js';
import { pause } from '../../../core/toolkit/timing.js';
import type { Run } from './answer.js';
import type { SessionKind } from './dialect.js';
import { SilentServerError } from './failure.js';
import type { Server } from './server.js';
import type { Session } from './session.js';

/** The kind of the sessions, and how many there may be. */
export interface SessionLimits extends SessionKind {
  readonly most: number;
  /** How many of them are reserved for callers that hold a lock already. */
  readonly reserved: number;
}

/** A need for a connection, until the signal aborts, or without one for `wait` ms. */
export interface ConnectionRequest {
  readonly wait: number;
  readonly signal?: AbortSignal;
  readonly key?: string;
  /** Called when it has to wait; a caller that leaves gets this error. */
  waits?(instead: LockError): void;
  /** How many locks of this provider its caller holds already. */
  readonly otherKeysHeld?: number;
}

/** The sessions of one kind: a limited number, each used again while it is fresh. */
export class Sessions {
  readonly slots: Slots;
  /** The sessions that nobody uses: the one that was used last is the last. */
  readonly #idle: Session[] = [];
  #sweep: object | undefined;
  #isClosed = false;

  constructor(
    private readonly server: Server,
    private readonly limits: SessionLimits,
  ) {
    this.slots = new Slots(server.clock, limits.most, limits.reserved, (key) => this.#exhausted(key));
  }

  /**
   * A session for one attempt. No promise where one is idle: nearly each statement takes one.
   *
   * @throws LockCapacityError when all connections are taken for `wait` ms, or until the signal aborts
   */
  take(request: ConnectionRequest): Session | Promise<Session> {
    const control = this.server.openControl;
    const isTaken = control !== undefined && this.slots.takeNow(request);
    const session = isTaken && this.#reuse(control);
    return session ? this.#use(session) : this.#open(isTaken ? undefined : request);
  }

  /** @param request for a connection that is not taken yet */
  async #open(request?: ConnectionRequest): Promise<Session> {
    if (request) await this.slots.take(request);
    try {
      const session = this.#reuse(await this.server.control()) ?? (await this.server.open(this.limits));
      if (!this.#isClosed) return this.#use(session);
      await session.close();
      throw new Error('The locks are closed, because the application stops.');
    } catch (error) {
      this.slots.free();
      throw error;
    }
  }

  #use(session: Session): Session {
    session.onFree = (isReusable) => {
      if (isReusable && !this.#isClosed) this.#keep(session);
      else if (isReusable) void session.close();
      this.slots.free();
    };
    return session;
  }

  /** Runs a statement in autocommit, on a session that has nothing else. */
  readonly run: Run = async (sql, parameters) => {
    const session = await this.take({ wait: this.server.commandTimeout });
    try {
      const answer = await session.run(sql, parameters);
      session.giveBack();
      return answer;
    } catch (error) {
      // Either the server has answered that it did nothing, or the statement may still be executed.
      if (this.server.dialect.isAnswer(error)) session.giveBack();
      // On a read-only server, the next statement goes where the address leads by then.
      else session.destroy();
      throw error;
    }
  };

  /** Closes those that nobody uses, and opens no new one. */
  async close(): Promise<void> {
    this.#isClosed = true;
    if (this.#sweep) this.server.clock.clearTimer(this.#sweep);
    await Promise.all(this.#idle.splice(0).map((session) => session.close()));
  }

  #exhausted(key: string | undefined): Error {
    // Without a key, each session is used for one statement: if none becomes free, the server is silent.
    if (key === undefined) return new SilentServerError('No statement was answered in time.');
    const { name: provider } = this.server;
    return new LockCapacityError(
      `Lock "${key}" of provider "${provider}" was not available. All ${this.limits.most} connections were in use. ` +
        'Raise maxConnections (and nestedConnections for locks inside locks), or hold fewer locks at a time.',
      { key, provider },
    );
  }

  /**
   * The session that was used last, if the control session is still the one that can end it. Not if another one has been silent since: a
   * NAT that forgets idle connections forgets all of them, and each would cost its caller a timeout.
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

  /** Closes idle sessions before the server does: it would count aborted clients. */
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
 * A limited number of connections, in the order of the requests.
 *
 * A caller that holds a lock keeps its connection until its nested locks are done. If such callers had all connections, none of them
 * would progress. So the last `reserved` ones are for nested requests: the first `n` of them for callers that hold `n` locks. And no waiter
 * has the last connection that a request may have, so that a key that is free can be had while others are waited for.
 */
export class Slots {
  readonly #waiting = new Set<{ readonly limit: number; readonly served: AbortController }>();
  #used = 0;

  constructor(
    private readonly clock: Clock,
    private readonly most: number,
    private readonly reserved: number,
    /** The error for a request that was not served. */
    private readonly exhausted: (key: string | undefined) => Error,
  ) {}

  /** Takes a connection if one is free. */
  takeNow(request: ConnectionRequest): boolean {
    if (this.#used >= this.#limitOf(request)) return false;
    this.#used += 1;
    return true;
  }

  /** Takes a connection. @throws Error that `exhausted` makes, when none was free in the time of the request */
  async take(request: ConnectionRequest): Promise<void> {
    if (this.takeNow(request)) return;
    if (request.wait <= 0) throw this.exhausted(request.key);
    const served = new AbortController();
    const waiter = { limit: this.#limitOf(request), served };
    this.#waiting.add(waiter);
    const error = this.exhausted(request.key);
    if (LockError.is(error)) request.waits?.(error);
    // A signal is made when it is read. It aborts when nobody waits any more, which may be later than `wait` says: others may have come.
    const { signal } = request;
    const end = signal ? AbortSignal.any([signal, served.signal]) : served.signal;
    await pause(this.clock, signal ? Infinity : request.wait, end);
    this.#waiting.delete(waiter);
    if (!served.signal.aborted) throw this.exhausted(request.key);
  }

  /** Whether a request that has a connection may keep it while it waits for a lock. */
  mayWait(request: ConnectionRequest): boolean {
    return this.#used < Math.max(2, this.#limitOf(request));
  }

  free(): void {
    this.#used -= 1;
    for (const waiter of this.#waiting) {
      if (this.#used >= waiter.limit) continue;
      this.#used += 1;
      this.#waiting.delete(waiter);
      waiter.served.abort();
      return;
    }
  }

  #limitOf({ otherKeysHeld = 0 }: ConnectionRequest): number {
    return this.most - Math.max(0, this.reserved - otherKeysHeld);
  }
}
