import type { AcquireRequest } from '../../../api/lock-provider.js';
import { LockCapacityError } from '../../../api/errors.js';
import type { Session } from '../session.js';
import type { Sessions } from '../sessions.js';
import type { AdvisoryStatements } from './advisory-statements.js';
import { HoldingSession, type SessionUser } from './holding-session.js';

/**
 * The sessions that locks are held on. Locks that are free when they are asked for share one, so that a thousand cost no more
 * connections than one; callers that ask in the same moment spread over some more, since a connection answers one statement at a
 * time. A waiter has a session of its own, which keeps the lock.
 */
export class HoldingSessions {
  readonly #shared = new Set<HoldingSession>();
  readonly #opening = new Set<Promise<Session>>();
  #alone = 0;

  constructor(
    private readonly source: Pick<Sessions, 'take'>,
    private readonly statements: AdvisoryStatements,
    private readonly maxConnections: number,
  ) {}

  /** A session to ask on without waiting. @throws LockCapacityError when there is none in the time of the caller */
  async shared(request: AcquireRequest, user: SessionUser): Promise<HoldingSession> {
    // The rest of the connections is left to waiters.
    const most = Math.floor(this.maxConnections / 2);
    for (;;) {
      const usable = [...this.#shared].filter(
        ({ session, mayHaveLock }) => !session.isLost() && !session.isSilent && !mayHaveLock,
      );
      const idlest = usable.sort((one, other) => one.session.inFlight - other.session.inFlight).at(0);
      const mayOpen = usable.length + this.#opening.size < most;
      if (idlest && (!mayOpen || idlest.session.inFlight === 0)) {
        idlest.enter(user);
        return idlest;
      }
      const opened = mayOpen && (await this.#open(request, idlest, user));
      if (opened) return opened;
      // All that may be are being opened by others.
      if (this.#opening.size > 0) await Promise.race(this.#opening).catch(() => undefined);
    }
  }

  /** A separate session to wait on; undefined when there is none, or when it would be the last one, which asks whether keys are free. */
  async alone(key: string, user: SessionUser): Promise<HoldingSession | undefined> {
    if (this.#alone >= this.maxConnections - 1) return undefined;
    this.#alone += 1;
    try {
      const session = await this.source.take({ key, wait: 0 });
      const own = new HoldingSession(session, this.statements, () => (this.#alone -= 1));
      own.enter(user);
      return own;
    } catch (error) {
      this.#alone -= 1;
      if (error instanceof LockCapacityError) return undefined;
      throw error;
    }
  }

  async #open(
    request: AcquireRequest,
    instead: HoldingSession | undefined,
    user: SessionUser,
  ): Promise<HoldingSession | undefined> {
    const opening = this.source.take(instead ? { key: request.key, wait: 0 } : request);
    this.#opening.add(opening);
    try {
      const shared: HoldingSession = new HoldingSession(await opening, this.statements, () =>
        this.#shared.delete(shared),
      );
      this.#shared.add(shared);
      shared.enter(user);
      return shared;
    } catch (error) {
      if (!instead || !(error instanceof LockCapacityError)) throw error;
      // It may have been given back meanwhile; then there is room.
      if (!this.#shared.has(instead)) return undefined;
      instead.enter(user);
      return instead;
    } finally {
      this.#opening.delete(opening);
    }
  }
}
