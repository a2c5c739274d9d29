import type {
  AcquireRequest,
  BackendContext,
  Grant,
  ReleaseOutcome,
  RenewOutcome,
} from '../../../api/lock-provider.js';
import { withAbort } from '../../../core/toolkit/abort-listeners.js';
import { firstToken } from '../../../core/toolkit/fencing-token.js';
import { pauseBeforeRetry } from '../connection/failure.js';
import { counterNameOf } from '../table/lock-name.js';
import { type Database, heldIn, type RequestState, type SqlRequest } from '../sql-backend.js';
import type { HoldingSession, SessionUser } from './holding-session.js';
import type { HoldingSessions } from './holding-sessions.js';

/** A connected database with advisory locks. */
export interface AdvisoryDatabase extends Database {
  /** Part of every lock name; see the statements' `scopeOf`. */
  readonly scope: string;
  readonly holding: HoldingSessions;
}

/** One request for one advisory lock. Makes attempts on a shared session and waits on a separate one. */
export class AdvisoryRequest implements SqlRequest, SessionUser {
  readonly #name: string;
  /** The name of the fencing counter; undefined without fencing. */
  readonly #counter: string | undefined;
  #state: RequestState<{ readonly place: HoldingSession; readonly grant: Grant }> = 'asking';
  /** The session on which the request tries to get the lock, or holds it. */
  #place: HoldingSession | undefined;
  /** The separate session that the request waits on. */
  #waitsOn: HoldingSession | undefined;

  constructor(
    private readonly context: BackendContext,
    private readonly database: AdvisoryDatabase,
    private readonly request: AcquireRequest,
  ) {
    const { settings } = database;
    this.#name = settings.family.advisory.nameOf(database.scope, context.namespace, request.key);
    this.#counter = settings.fencing ? counterNameOf(context.namespace, request.key) : undefined;
  }

  get unansweredFor(): number {
    return Math.max(this.#place?.session.overdueFor ?? 0, this.database.holding.unansweredFor(this.#name));
  }

  async acquire(): Promise<Grant | 'busy'> {
    const { request } = this;
    const held = heldIn(this.#state);
    if (held) {
      const { grant, place } = held;
      // Any of the granted tokens may have been used.
      const last = grant.fencingToken === null ? null : grant.fencingToken + BigInt(grant.followers ?? 0);
      return { ...grant, fencingToken: last, followers: 0, validUntil: place.session.validUntil };
    }
    const { holding } = this.database;
    for (;;) {
      const shared = await holding.shared(request, this);
      const grant = await this.#lockOn(shared, () => shared.tryLock(this.#name, request.mode, request));
      if (grant) return grant;
      // This process may already have the lock through an earlier, unanswered attempt. Don't wait for it or report it
      // as busy: the holder is unknown.
      if (holding.blocks(this.#name)) {
        throw new Error('An earlier attempt by this process got no response and may hold the lock.');
      }
      if (request.wait <= 0 || this.#hasEnded() || request.signal.aborted) return 'busy';
      request.waits();
      const leave = () => {
        if (!heldIn(this.#state)) this.#end();
      };
      const answer = await withAbort(request.signal, leave, () => this.#queue());
      if (answer) return answer;
      await pauseBeforeRetry(this.context, request.signal);
    }
  }

  async renew(): Promise<RenewOutcome> {
    return heldIn(this.#state)?.place.session.renew() ?? 'lost';
  }

  async release(): Promise<ReleaseOutcome> {
    const held = this.#end();
    if (!held) return 'lost';
    const { place } = held;
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
    if (heldIn(this.#state)) this.request.lost(cause);
  }

  /**
   * Waits in the server's queue, on a session with no locks, so the session can be ended if the caller leaves. Resolves
   * to undefined if no connection is available.
   */
  async #queue(): Promise<Grant | 'busy' | undefined> {
    const { key } = this.request;
    try {
      const own = await this.database.holding.alone(key, this);
      if (!own) return undefined;
      const lock = () => {
        if (this.#hasEnded()) return Promise.resolve(false);
        this.#waitsOn = own;
        return own.awaitLock(this.#name, this.request);
      };
      return (await this.#lockOn(own, lock)) ?? 'busy';
    } catch (error) {
      // We ended the session ourselves, so this is not a failure.
      if (this.#hasEnded()) return 'busy';
      throw error;
    }
  }

  /** Takes the lock on this session. Keeps the session if that succeeds; otherwise leaves it. */
  async #lockOn(place: HoldingSession, lock: () => Promise<boolean>): Promise<Grant | undefined> {
    const { session } = place;
    let isLocked = false;
    this.#place = place;
    try {
      isLocked = await lock();
      if (!isLocked) return undefined;
      const { callers, mode } = this.request;
      // `nextTokens` returns the last of `callers` tokens. Run its statement on the session that holds the lock, so it
      // fails if the guard freed the lock.
      const lastToken =
        this.#counter === undefined ? null : await this.database.table.nextTokens(this.#counter, callers, session.run);
      if (session.isLost()) throw new Error('The connection was lost.');
      if (this.#hasEnded()) return undefined;
      const fencingToken = lastToken === null ? null : firstToken(mode, lastToken, callers);
      const { validUntil } = session;
      const grant = { fencingToken, followers: callers - 1, validUntil, lease: this.database.settings.sessionGuard };
      this.#state = { place, grant };
      return grant;
    } finally {
      if (!heldIn(this.#state)) void this.#leave(place, isLocked);
    }
  }

  async #leave(place: HoldingSession, isLocked: boolean): Promise<void> {
    // Other requests may use the session from now on.
    this.#waitsOn = undefined;
    if (isLocked) await place.unlock(this.#name, this.request.mode).catch(() => undefined);
    place.leave(this);
  }

  /** Ends the request, whatever state it is in. Returns what it held. */
  #end() {
    const held = heldIn(this.#state);
    this.#state = 'over';
    if (!held) this.#waitsOn?.session.destroy();
    return held;
  }

  // A method because otherwise TypeScript would assume that the state can't change during an await.
  #hasEnded(): boolean {
    return this.#state === 'over';
  }
}
