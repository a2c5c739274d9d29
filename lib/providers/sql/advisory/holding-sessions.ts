import type { AcquireRequest, BackendContext } from '../../../api/lock-provider.js';
import { LockCapacityError } from '../../../api/errors.js';
import type { AdvisoryStatements } from '../connection/dialect.js';
import type { Session } from '../connection/session.js';
import { type Sessions, Slots } from '../connection/sessions.js';
import { HoldingSession, type SessionUser } from './holding-session.js';

// Which part of the server's lock table one provider of one process may have. Eight of them then fill what is promised to all clients; Postgres 15 took 1.7
// times as many locks (measured) before it refused statements of everybody.
const SHARE = 8;
// A server that is configured to be tiny has room for so many all the same: what its settings promise is less than what it has.
const LEAST = 16;
// For callers that hold a lock already: if callers with one lock each had all places, none of them could get its second one.
const NESTED = 8;

/**
 * The sessions that locks are held on. Locks that are free when they are asked for share one, so that a thousand cost no more connections
 * than one. A waiter has a session of its own, which keeps the lock.
 */
export class HoldingSessions {
  /** Those that have a user. */
  readonly #used = new Set<HoldingSession>();
  #shared: HoldingSession | undefined;
  #opening: Promise<unknown> | undefined;
  #alone = 0;

  constructor(
    private readonly source: Pick<Sessions, 'take'>,
    private readonly statements: AdvisoryStatements,
    private readonly maxConnections: number,
    /** Of the locks on shared sessions. One that was waited for has a session of its own, so the number of these limits it. */
    private readonly places?: Slots,
  ) {}

  /** As {@link HoldingSession.unansweredFor}, of any of them: what keeps this lock busy may be an earlier attempt of this process. */
  unansweredFor(name: string): number {
    return Math.max(0, ...Array.from(this.#used, (session) => session.unansweredFor(name)));
  }

  /** The session to ask on without waiting. @throws LockCapacityError when there is none in the time of the caller */
  shared(request: AcquireRequest, user: SessionUser): HoldingSession | Promise<HoldingSession> {
    if (this.#shared?.isUsable) {
      this.#shared.enter(user);
      return this.#shared;
    }
    // Also after a failure, which was that of another caller: it may have left.
    const again = () => this.shared(request, user);
    if (this.#opening) return this.#opening.then(again, again);
    const session = this.source.take(request);
    return session instanceof Promise ? this.#open(session, user) : this.#share(session, user);
  }

  /** A separate session to wait on; undefined when there is none, or when it would be the last one, which asks whether keys are free. */
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

  async #open(opening: Promise<Session>, user: SessionUser): Promise<HoldingSession> {
    this.#opening = opening;
    try {
      return this.#share(await opening, user);
    } finally {
      this.#opening = undefined;
    }
  }

  #share(session: Session, user: SessionUser): HoldingSession {
    const onEnd = () => {
      if (this.#shared === shared) this.#shared = undefined;
    };
    const shared: HoldingSession = this.#hold(session, user, onEnd, this.places);
    this.#shared = shared;
    return shared;
  }

  #hold(session: Session, user: SessionUser, onEnd: () => void, places?: Slots): HoldingSession {
    const onEmpty = () => {
      this.#used.delete(holding);
      onEnd();
    };
    const holding: HoldingSession = new HoldingSession(session, this.statements, onEmpty, places);
    this.#used.add(holding);
    holding.enter(user);
    return holding;
  }
}

/**
 * How many locks a provider may have on the connection that they share, where the server has one table for the locks of all its clients.
 *
 * @param inTable how many locks that table has room for
 */
export function lockPlaces({ name: provider, clock }: BackendContext, inTable: number): Slots {
  const most = Math.max(LEAST, Math.floor(inTable / SHARE));
  const exhausted = (key: string | undefined) =>
    new LockCapacityError(
      `Lock ${key === undefined ? '' : `"${key}" `}of provider "${provider}" was not acquired. This provider has as many advisory locks as one may have in a process: ${most}, ` +
        `an eighth of the ${inTable} places that the lock table of this Postgres promises to all its clients (max_locks_per_transaction × (max_connections + max_prepared_transactions)), ` +
        `and the last ${NESTED} are for callers that hold a lock. Hold fewer locks at a time, raise max_locks_per_transaction, or use the version lock, which has no such limit.`,
      { ...(key !== undefined && { key }), provider },
    );
  return new Slots(clock, most, NESTED, exhausted);
}
