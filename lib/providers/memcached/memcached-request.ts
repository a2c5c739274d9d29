import type { AcquireRequest, BackendContext, Grant } from '../../api/lock-provider.js';
import { backOff, pause } from '../../core/toolkit/timing.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { type Hold, holdOf, secondsFor, textOf } from './lock-item.js';
import type { ReconnectingConnection } from './reconnecting-connection.js';

// memcached doesn't announce releases, so waiters poll.
const POLL_DELAY = { first: 10, most: 200 };

/** One attempt to acquire a lock, from the first command to the result. */
export class MemcachedRequest {
  readonly answer: Promise<Grant | 'busy'>;
  #isReleased = false;
  /** When the command in flight was sent. */
  #sentAt: number | undefined;

  constructor(
    private readonly context: BackendContext,
    private readonly connection: ReconnectingConnection,
    private readonly itemKey: string,
    private readonly request: AcquireRequest,
  ) {
    this.answer = this.#acquire();
  }

  /**
   * Ends the attempt after its next command or pause, because the request was released or the backend is closing. An
   * `add` in flight needs no special handling: the release follows it on the same connection and finds the item.
   */
  release(): void {
    this.#isReleased = true;
  }

  /** How long the command in flight has gone unanswered, in ms. */
  get unansweredFor(): number {
    return this.#sentAt === undefined ? 0 : this.context.clock.now() - this.#sentAt;
  }

  async #acquire(): Promise<Grant | 'busy'> {
    const { request, context, connection, itemKey } = this;
    const { id: holder, key, lease, minHold } = request;
    const seconds = secondsFor(Math.max(lease, minHold));
    let isHeldByOther = false;
    for (let round = 0; !this.#isReleased;) {
      // If the wait ends during a pause, try once more: the lock may be free by now.
      const isLast = request.wait <= 0 || request.signal.aborted;
      const now = context.clock.now();
      this.#sentAt = now;
      const hold: Hold = { holder, leaseEndsAt: now + lease, keptUntil: now + minHold };
      if (await connection.use((server) => server.add(itemKey, textOf(hold), seconds), key)) return this.#grant(hold);
      if (!isHeldByOther) {
        // This attempt, or an earlier one of the same request, may have added the item and lost the reply.
        const item = await connection.use((server) => server.read(itemKey), key);
        if (!item) continue;
        const own = holdOf(item.value, holder);
        if (own) return this.#grant(own);
        isHeldByOther = true;
      }
      this.#sentAt = undefined;
      if (isLast) break;
      if (round === 0) request.waits();
      await pause(context.clock, backOff(context.random, round, POLL_DELAY), request.signal);
      round += 1;
    }
    return 'busy';
  }

  #grant({ leaseEndsAt }: Hold): Grant {
    const { lease, callers } = this.request;
    const until = validUntil(leaseEndsAt - lease, lease);
    return { lease, validUntil: until, fencingToken: null, followers: callers - 1 };
  }
}
