import {
  type AcquireRequest,
  type Clock,
  type Grant,
  type ReleaseOutcome,
  type RenewOutcome,
  validUntil,
} from '../../../engine/lock-provider.js';
import type { Dialect } from '../dialect.js';
import type { LockTable } from '../lock-table.js';
import type { LockAttempt } from '../session-locks.js';
import type { Session } from '../session.js';
import type { HoldingSession, Tenant } from './holding-session.js';
import type { HoldingSessions } from './holding-sessions.js';

/** What an attempt needs of its provider. */
export interface AdvisoryLocking {
  readonly clock: Clock;
  readonly dialect: Dialect;
  readonly table: LockTable;
  readonly sessions: HoldingSessions;
  /** The session guard, in ms. */
  readonly guard: number;
  nameOf(key: string): string;
  /** The name of the fencing counter, or undefined where no tokens are wanted. */
  counterOf(key: string): string | undefined;
  onWaiting(holder: string): void;
  onLost(holder: string, cause: unknown): void;
}

/** One attempt to hold one advisory lock: asks on a shared session, and waits on one of its own. */
export class AdvisoryAttempt implements LockAttempt, Tenant {
  readonly #name: string;
  /** Where it holds. */
  #place: HoldingSession | undefined;
  #grant: Grant | undefined;
  #isOver = false;
  /** The session of its own, if it had to wait. */
  #waitsOn: HoldingSession | undefined;

  constructor(
    private readonly locking: AdvisoryLocking,
    private readonly request: AcquireRequest,
  ) {
    this.#name = locking.nameOf(request.key);
  }

  async acquire(): Promise<Grant | 'busy'> {
    const { request } = this;
    const pinned = await this.locking.sessions.pinned(request, this);
    const grant = await this.#lockOn(pinned, () => pinned.tryLock(this.#name, request.mode));
    if (grant) return grant;
    return request.wait <= 0 || this.#hasEnded() || request.signal.aborted ? 'busy' : this.#queue();
  }

  get grant(): Grant | undefined {
    const until = this.#validUntil();
    return this.#grant && !this.#hasEnded() ? { ...this.#grant, validUntil: until } : undefined;
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
      return (await place.unlock(this.#name, this.request.mode)) ? 'released' : 'lost';
    } catch {
      return place.session.isLost() ? 'lost' : 'unknown';
    } finally {
      place.leave(this);
    }
  }

  onSessionLost(cause: unknown): void {
    if (this.grant) this.locking.onLost(this.request.holder, cause);
  }

  /** Waits in the server's queue, on a session that has nothing else: whoever leaves ends it. */
  async #queue(): Promise<Grant | 'busy'> {
    const { locking, request } = this;
    const { signal, mode } = request;
    const leave = () => {
      this.#abandon();
    };
    signal.addEventListener('abort', leave, { once: true });
    try {
      const own = await locking.sessions.alone(request, this);
      const grant = await this.#lockOn(own, () => {
        if (this.#hasEnded()) return Promise.resolve(false);
        this.#waitsOn = own;
        locking.onWaiting(request.holder);
        return own.awaitLock(this.#name, mode);
      });
      return grant ?? 'busy';
    } catch (error) {
      // The end of our own session is no failure.
      if (this.#waitsOn && this.#hasEnded()) return 'busy';
      throw error;
    } finally {
      signal.removeEventListener('abort', leave);
    }
  }

  /** Locks on this session and stays on it, or leaves it. */
  async #lockOn(place: HoldingSession, lock: () => Promise<boolean>): Promise<Grant | undefined> {
    const { session } = place;
    let isLocked = false;
    try {
      isLocked = await lock();
      if (!isLocked) return undefined;
      const fencingToken = await this.#tokenOn(session);
      if (session.isLost()) throw new Error('The connection was lost.');
      if (this.#hasEnded()) return undefined;
      const { key, holder, mode } = this.request;
      this.#place = place;
      this.#grant = { key, holder, mode, fencingToken, validUntil: this.#validUntil(), lease: this.locking.guard };
      return this.#grant;
    } finally {
      if (!this.#grant) this.#leave(place, isLocked);
    }
  }

  /** The token, counted on the session that has the lock: who has lost that to the guard cannot count any more. */
  async #tokenOn(session: Session): Promise<bigint | null> {
    const counter = this.locking.counterOf(this.request.key);
    if (counter !== undefined) return this.locking.table.nextToken(counter, session.run);
    // After a wait the statement that the server has answered is as old as the wait: validity has to begin anew.
    if (this.#waitsOn) await session.heartbeat();
    return null;
  }

  #leave(place: HoldingSession, isLocked: boolean): void {
    const unlocked = isLocked ? place.unlock(this.#name, this.request.mode) : Promise.resolve();
    unlocked
      .catch(() => undefined)
      .finally(() => {
        place.leave(this);
      })
      .catch(() => undefined);
  }

  /** Ends it without a word, wherever it stands. */
  #abandon(): void {
    this.#isOver = true;
    this.#waitsOn?.session.destroy();
  }

  // A method, because the answer changes while something is awaited.
  #hasEnded(): boolean {
    return this.#isOver;
  }

  #validUntil(): number {
    return validUntil(this.#place?.session.answered ?? -Infinity, this.locking.guard);
  }
}
