import type { AcquireRequest, BackendContext } from '../../../api/lock-provider.js';
import { LockCapacityError } from '../../../api/errors.js';
import type { AdvisoryStatements } from '../connection/dialect.js';
import type { Session } from '../connection/session.js';
import { type Sessions, Slots } from '../connection/sessions.js';
import { HoldingSession, type SessionUser } from './holding-session.js';

// The share of the server's lock table that one provider in one process may use. Eight such shares use up the room
// promised to all clients. Postgres 15 accepted 1.7 times as many locks (measured) before other clients' statements
// failed.
const SHARE = 8;
// A minimum for servers with tiny settings, which have more room than they promise.
const LEAST = 16;
// Reserved for callers that already hold a lock. Otherwise, if others took up all the room, no holder could get a
// second lock.
const NESTED = 8;

/**
 * The sessions that hold locks. Locks that are free when requested share one session, so a thousand locks need no more
 * connections than a single lock. Each waiter uses its own session, which then holds the lock.
 */
export class HoldingSessions {
  /** Sessions with at least one user, and sessions that may still exist on the server. */
  readonly #used = new Set<HoldingSession>();
  #shared: HoldingSession | undefined;
  #opening: Promise<unknown> | undefined;
  #alone = 0;

  constructor(
    private readonly source: Pick<Sessions, 'take'>,
    private readonly statements: AdvisoryStatements,
    private readonly maxConnections: number,
    /** Limits the locks on the shared session. Locks acquired by waiting are limited by the number of sessions. */
    private readonly places?: Slots,
  ) {}

  /** How long the server has been silent, in ms, about failed attempts of this process that may have the lock. */
  unansweredFor(name: string): number {
    return Math.max(0, ...this.#blocking(name).map(({ session }) => session.overdueFor));
  }

  /** Like {@link HoldingSession.blocks}, but for all sessions. */
  blocks(name: string): boolean {
    return this.#blocking(name).length > 0;
  }

  #blocking(name: string): readonly HoldingSession[] {
    this.#forgetGone();
    return [...this.#used].filter((session) => session.blocks(name));
  }

  /**
   * The session for attempts that don't wait. @throws LockCapacityError if none is available within the caller's wait
   */
  shared(request: AcquireRequest, user: SessionUser): HoldingSession | Promise<HoldingSession> {
    if (this.#shared?.isUsable) {
      this.#shared.enter(user);
      return this.#shared;
    }
    const again = () => this.shared(request, user);
    if (this.#opening) {
      return this.#opening.then(again, (error: unknown) => {
        // The caller that opens it may have waited for less time than this one. Any other failure concerns all callers:
        // if each tried again, every failure would wake up all the rest.
        if (error instanceof LockCapacityError) return again();
        throw error;
      });
    }
    return this.#open(request, user);
  }

  /**
   * A separate session to wait on. Undefined if none is available; the last one is reserved for attempts that don't
   * wait.
   */
  async alone(key: string, user: SessionUser): Promise<HoldingSession | undefined> {
    if (this.#alone >= this.maxConnections - 1) return undefined;
    this.#alone += 1;
    const onEnd = () => {
      this.#alone -= 1;
    };
    try {
      return this.#hold(await this.source.take({ key, wait: 0 }), user, onEnd);
    } catch (error) {
      onEnd();
      if (error instanceof LockCapacityError) return undefined;
      throw error;
    }
  }

  async #open(request: AcquireRequest, user: SessionUser): Promise<HoldingSession> {
    try {
      const onEnd = () => {
        if (this.#shared === shared) this.#shared = undefined;
      };
      const opening = this.source.take(request);
      this.#opening = opening;
      const shared = this.#hold(await opening, user, onEnd, this.places);
      this.#shared = shared;
      return shared;
    } finally {
      this.#opening = undefined;
    }
  }

  #forgetGone(): void {
    for (const session of this.#used) if (session.isGone) this.#used.delete(session);
  }

  #hold(session: Session, user: SessionUser, onEnd: () => void, places?: Slots): HoldingSession {
    this.#forgetGone();
    const onEmpty = () => {
      this.#forgetGone();
      onEnd();
    };
    const holding: HoldingSession = new HoldingSession(session, this.statements, onEmpty, places);
    this.#used.add(holding);
    holding.enter(user);
    return holding;
  }
}

/**
 * Limits the locks on the shared connection, if all clients of the server share one lock table.
 *
 * @param inTable that table's capacity
 */
export function lockPlaces({ name: provider, clock }: BackendContext, inTable: number): Slots {
  const most = Math.max(LEAST, Math.floor(inTable / SHARE));
  const exhausted = (key: string | undefined) =>
    new LockCapacityError(
      `Lock ${key === undefined ? '' : `"${key}" `}of provider "${provider}" was not acquired, because this provider already holds the maximum of ${most} advisory locks in this process: ` +
        `an eighth of the ${inTable} entries in the server's lock table (max_locks_per_transaction × (max_connections + max_prepared_transactions)), ` +
        `with the last ${NESTED} reserved for callers that hold a lock. Hold fewer locks at a time, raise max_locks_per_transaction, or use the version lock.`,
      { ...(key !== undefined && { key }), provider },
    );
  return new Slots(clock, most, NESTED, exhausted);
}
