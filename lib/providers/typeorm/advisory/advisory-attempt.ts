import { type AcquireRequest, type Grant, type ReleaseOutcome, type RenewOutcome } from '../../../api/lock-provider.js';
import { pause } from '../../../core/toolkit/pause.js';
import { validUntil } from '../../../core/toolkit/validity.js';
import type { LockMode } from '../../../api/lock-options.js';
import type { Session } from '../session.js';
import type { LockAttempt } from '../sql-lock-provider.js';
import type { AdvisoryLocks } from './advisory-lock-provider.js';
import { isDone } from './advisory-statements.js';
import type { HoldingSession, SessionUser } from './holding-session.js';

// How long before a lock is asked for again by a waiter that has no session of its own, in ms: between half of it and all of it.
const PAUSE = 60;

/** One attempt to hold one advisory lock: asks on a shared session, and waits on one of its own. */
export class AdvisoryAttempt implements LockAttempt, SessionUser {
  /** Where it holds. */
  #place: HoldingSession | undefined;
  #grant: Grant | undefined;
  #isOver = false;
  /** The session of its own, if it waits or has waited on one. */
  #waitsOn: HoldingSession | undefined;

  constructor(
    private readonly locks: AdvisoryLocks,
    private readonly holder: string,
    private readonly name: string,
    private readonly mode: LockMode,
    /** The fencing counter, or undefined where no tokens are wanted. */
    private readonly counter: string | undefined,
  ) {}

  async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    if (this.#grant && !this.#hasEnded()) return { ...this.#grant, validUntil: this.#validUntil() };
    const { sessions, database } = this.locks;
    const { context } = database;
    for (;;) {
      const shared = await sessions.shared(request, this);
      const grant = await this.#lockOn(shared, () => shared.tryLock(this.name, this.mode), request.key);
      if (grant) return grant;
      if (request.wait <= 0 || this.#hasEnded() || request.signal.aborted) return 'busy';
      context.emit({ type: 'waiting', holder: this.holder });
      const answer = await this.#queue(request);
      if (answer) return answer;
      await pause(context.clock, PAUSE * (0.5 + context.random.fraction() / 2), request.signal);
    }
  }

  async renew(): Promise<RenewOutcome> {
    const session = this.#place?.session;
    if (!this.#grant || this.#hasEnded() || !session || session.isLost()) return 'lost';
    try {
      await session.heartbeat();
    } catch {
      return session.isLost() ? 'lost' : 'unknown';
    }
    return { validUntil: this.#validUntil() };
  }

  async release(): Promise<ReleaseOutcome> {
    const place = this.#place;
    if (!this.#grant || this.#hasEnded() || !place) {
      this.#abandon();
      return 'lost';
    }
    this.#isOver = true;
    try {
      if (place.session.isLost()) return 'lost';
      return (await place.unlock(this.name, this.mode)) ? 'released' : 'lost';
    } catch {
      return place.session.isLost() ? 'lost' : 'unknown';
    } finally {
      place.leave(this);
    }
  }

  onSessionLost(cause: unknown): void {
    if (!this.#grant || this.#hasEnded()) return;
    this.locks.database.context.emit({ type: 'lost', holder: this.holder, cause });
  }

  /**
   * Waits in the server's queue, on a session that has nothing else: a caller that leaves ends it. Resolves to nothing if there is no
   * connection for that.
   */
  async #queue(request: AcquireRequest): Promise<Grant | 'busy' | undefined> {
    const { signal } = request;
    const leave = () => {
      this.#abandon();
    };
    signal.addEventListener('abort', leave, { once: true });
    try {
      const own = await this.locks.sessions.alone(request.key, this);
      if (!own) return undefined;
      const lock = () => {
        if (this.#hasEnded()) return Promise.resolve(false);
        this.#waitsOn = own;
        return own.awaitLock(this.name, this.mode);
      };
      return (await this.#lockOn(own, lock, request.key)) ?? 'busy';
    } catch (error) {
      // The end of our own session is no failure.
      if (this.#hasEnded()) return 'busy';
      throw error;
    } finally {
      signal.removeEventListener('abort', leave);
    }
  }

  /** Locks on this session and stays on it, or leaves it. */
  async #lockOn(place: HoldingSession, lock: () => Promise<boolean>, key: string): Promise<Grant | undefined> {
    const { session } = place;
    let isLocked = false;
    try {
      isLocked = await lock();
      if (!isLocked) return undefined;
      const fencingToken = await this.#tokenOn(session);
      if (session.isLost()) throw new Error('The connection was lost.');
      if (this.#hasEnded()) return undefined;
      const { holder, mode } = this;
      this.#place = place;
      this.#grant = {
        key,
        holder,
        mode,
        fencingToken,
        validUntil: this.#validUntil(),
        lease: this.locks.settings.guard,
      };
      return this.#grant;
    } finally {
      if (!this.#grant) this.#leave(place, isLocked);
    }
  }

  /** The token, counted on the session that has the lock: a holder that has lost it to the guard cannot count any more. */
  async #tokenOn(session: Session): Promise<bigint | null> {
    const { database, statements } = this.locks;
    // After a wait the statement that the server has answered is as old as the wait: validity has to begin again.
    if (this.#waitsOn) isDone(await session.run(statements.afterWait));
    return this.counter === undefined ? null : database.table.nextTokens(this.counter, 1n, session.run);
  }

  #leave(place: HoldingSession, isLocked: boolean): void {
    // From here on others may use it.
    this.#waitsOn = undefined;
    const unlocked = isLocked ? place.unlock(this.name, this.mode) : Promise.resolve();
    unlocked
      .catch(() => undefined)
      .finally(() => {
        place.leave(this);
      })
      .catch(() => undefined);
  }

  /** Ends it silently, in whatever state it is. */
  #abandon(): void {
    this.#isOver = true;
    if (!this.#grant) this.#waitsOn?.session.destroy();
  }

  // A method, because the answer changes while something is awaited.
  #hasEnded(): boolean {
    return this.#isOver;
  }

  #validUntil(): number {
    return validUntil(this.#place?.session.answered ?? -Infinity, this.locks.settings.guard);
  }
}
