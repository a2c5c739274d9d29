import type { AcquireRequest } from '../../../engine/lock-provider.js';
import { LockCapacityError } from '../../../lock/errors.js';
import type { Session } from '../session.js';
import type { Sessions } from '../sessions.js';
import type { AdvisoryStatements } from './advisory-statements.js';
import { HoldingSession, type Tenant } from './holding-session.js';

/**
 * The sessions that locks are held on. Locks that are free when they are asked for share one, so that a thousand cost no more
 * connections than one; callers that ask at the same moment spread over some more, since a connection answers one statement at a
 * time. Whoever waits has a session of its own, which keeps the lock.
 */
export class HoldingSessions {
  readonly #pinned = new Set<HoldingSession>();
  readonly #opening = new Set<Promise<Session>>();

  constructor(
    private readonly source: Pick<Sessions, 'take'>,
    private readonly statements: AdvisoryStatements,
    /** How many may be shared. The rest of the connections is left to those who wait. */
    private readonly mostPinned: number,
  ) {}

  /** A session to ask on without waiting. @throws LockCapacityError when there is none in the time of the caller. */
  async pinned(request: AcquireRequest, tenant: Tenant): Promise<HoldingSession> {
    for (;;) {
      const usable = [...this.#pinned].filter(({ session }) => !session.isLost() && !session.isSilent);
      const idlest = usable.sort((one, other) => one.session.inFlight - other.session.inFlight).at(0);
      const mayOpen = usable.length + this.#opening.size < this.mostPinned;
      const session =
        idlest && (!mayOpen || idlest.session.inFlight === 0) ? idlest : mayOpen && (await this.#open(request, idlest));
      if (session) {
        session.enter(tenant);
        return session;
      }
      // All that may be are being opened by others.
      await Promise.race(this.#opening).catch(() => undefined);
    }
  }

  /** A session of one's own, to wait on. @throws LockCapacityError when there is none in the time of the caller. */
  async alone(request: AcquireRequest, tenant: Tenant): Promise<HoldingSession> {
    const own = new HoldingSession(await this.source.take(request), this.statements, () => undefined);
    own.enter(tenant);
    return own;
  }

  async #open(request: AcquireRequest, instead: HoldingSession | undefined): Promise<HoldingSession | undefined> {
    const opening = this.source.take(instead ? { key: request.key, wait: 0 } : request);
    this.#opening.add(opening);
    try {
      const pinned: HoldingSession = new HoldingSession(await opening, this.statements, () =>
        this.#pinned.delete(pinned),
      );
      this.#pinned.add(pinned);
      return pinned;
    } catch (error) {
      if (!instead || !(error instanceof LockCapacityError)) throw error;
      // It may have gone back to the pool meanwhile; then there is room.
      return this.#pinned.has(instead) ? instead : undefined;
    } finally {
      this.#opening.delete(opening);
    }
  }
}
