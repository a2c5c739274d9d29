import type { AcquireRequest } from '../../../api/lock-provider.js';
import { LockCapacityError } from '../../../api/errors.js';
import type { Session } from '../connection/session.js';
import type { Sessions } from '../connection/sessions.js';
import type { AdvisoryStatements } from './advisory-statements.js';
import { HoldingSession, type SessionUser } from './holding-session.js';
import type { LockPlaces } from './lock-places.js';

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
    private readonly places?: LockPlaces,
  ) {}

  /** As {@link HoldingSession.unansweredFor}, of any of them: what keeps this lock busy may be an earlier attempt of this process. */
  unansweredFor(name: string): number {
    return Math.max(0, ...Array.from(this.#used, (session) => session.unansweredFor(name)));
  }

  /** The session to ask on without waiting. @throws LockCapacityError when there is none in the time of the caller */
  shared(request: AcquireRequest, user: SessionUser): HoldingSession | Promise<HoldingSession> {
    const shared = this.#shared;
    if (shared?.isUsable) {
      shared.enter(user);
      return shared;
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
    try {
      const session = await this.source.take({ key, wait: 0 });
      const onEmpty = () => {
        this.#alone -= 1;
        this.#used.delete(own);
      };
      const own: HoldingSession = new HoldingSession(session, this.statements, onEmpty);
      this.#used.add(own);
      own.enter(user);
      return own;
    } catch (error) {
      this.#alone -= 1;
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
    const onEmpty = () => {
      this.#used.delete(shared);
      if (this.#shared === shared) this.#shared = undefined;
    };
    const shared: HoldingSession = new HoldingSession(session, this.statements, onEmpty, this.places);
    this.#shared = shared;
    this.#used.add(shared);
    shared.enter(user);
    return shared;
  }
}
