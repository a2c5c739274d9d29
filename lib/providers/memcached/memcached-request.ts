import type { AcquireRequest, BackendContext, Grant } from '../../api/lock-provider.js';
import { backOff, pause } from '../../core/toolkit/timing.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { secondsFor } from './expiry.js';
import { type Hold, holdOf, textOf } from './item-value.js';
import type { ReconnectingConnection } from './reconnecting-connection.js';

// memcached notifies nobody of a release, so a waiter asks again.
const PAUSE = { first: 10, most: 200 };

/** One ask of a request for one lock, from its first command to its answer. */
export class MemcachedRequest {
  readonly answer: Promise<Grant | 'busy'>;
  #isReleased = false;
  /** When the question in flight was sent, on the monotonic clock. */
  #askedAt: number | undefined;

  constructor(
    private readonly context: BackendContext,
    private readonly connection: ReconnectingConnection,
    private readonly itemKey: string,
    private readonly request: AcquireRequest,
  ) {
    this.answer = this.#acquire();
  }

  /**
   * Ends it, after its next command or pause: its holder is released, or the backend closes. An addition that is in flight needs no
   * more: the release follows it on the same connection, and finds the item.
   */
  release(): void {
    this.#isReleased = true;
  }

  /** For how many ms the server has not answered. */
  get unansweredFor(): number {
    return this.#askedAt === undefined ? 0 : this.context.clock.now() - this.#askedAt;
  }

  async #acquire(): Promise<Grant | 'busy'> {
    const { request, context, connection, itemKey } = this;
    const { id: holder, key, lease, minHold } = request;
    const seconds = secondsFor(Math.max(lease, minHold));
    let isOthers = false;
    for (let round = 0; !this.#isReleased;) {
      // A caller whose wait ends during a pause asks once more: the lock may have become free.
      const isLast = request.wait <= 0 || request.signal.aborted;
      const now = context.clock.now();
      this.#askedAt = now;
      const hold: Hold = { holder, leaseEndsAt: now + lease, keptUntil: now + minHold };
      if (await connection.use((server) => server.add(itemKey, textOf(hold), seconds), key)) return this.#grant(hold);
      if (!isOthers) {
        // An earlier ask of this request, or this one, may have added the item and lost the reply.
        const item = await connection.use((server) => server.read(itemKey), key);
        if (!item) continue;
        const own = holdOf(item.value, holder);
        if (own) return this.#grant(own);
        isOthers = true;
      }
      this.#askedAt = undefined;
      if (isLast) break;
      if (round === 0) request.waits();
      await pause(context.clock, backOff(context.random, round, PAUSE), request.signal);
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
