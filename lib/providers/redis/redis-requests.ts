import type { Timer } from '../../api/clock.js';
import type { AcquireRequest, BackendContext, Grant } from '../../api/lock-provider.js';
import { HolderTable } from './holder-table.js';
import type { SeenHolders } from '../shared/seen-holders.js';
import { HEAVY } from './client/batcher.js';
import type { KeyLayout } from './key-layout.js';
import { ASK_AGAIN, RedisRequest } from './redis-request.js';
import type { RedisServers } from './redis-servers.js';
import { readFreeIn, readNotice } from './wire.js';

/** Where a notice comes from: the reply to a call that was sent at `sentAt`, or a channel, on which others may publish as well. */
type NoticeOrigin = { readonly sentAt: number } | { readonly channel: string };

/**
 * All requests of this process, by id: from the first ask until the release, because the server may name them in a message.
 *
 * A message about an id that is not here is answered with a release: the server has remembered it from a snapshot or a replica that
 * lagged, and would keep others out for it.
 */
export class RedisRequests {
  readonly #requests = new HolderTable<RedisRequest>();
  /** Asks again for each request that waits. */
  #timer: Timer | undefined;

  constructor(
    readonly context: BackendContext,
    readonly servers: RedisServers,
    private readonly layout: KeyLayout,
    /** Every grant must be confirmed before it is answered. */
    readonly confirmsAll: boolean,
    readonly holders: SeenHolders,
  ) {}

  acquire(request: AcquireRequest<RedisRequest>, lock: string): Promise<Grant | 'busy' | 'not-asked'> {
    const own = (request.state ??= new RedisRequest(request, lock, this));
    // Before it is sent: a message about the grant may overtake the reply.
    this.#requests.set(request.id, own);
    return own.acquire();
  }

  /** From now on, a message that names this holder is answered with a release. */
  forget(holder: string): void {
    this.#requests.delete(holder);
  }

  onNotice(text: string, origin: NoticeOrigin): void {
    const frees = readFreeIn(text);
    if (frees) {
      // Its ask may be unanswered: the answer comes later in the same reply, or a message has overtaken it.
      this.#requests.get(frees.holder)?.wakeIn(frees.freeIn);
      return;
    }
    const notice = readNotice(text);
    if (!notice || !this.#concernsUs(notice.lock, origin)) return;
    const known = this.#requests.get(notice.holder);
    if (!known) {
      this.#releaseUnknown(notice);
      return;
    }
    // Answered already: a message may come after the ask that found the grant.
    if (!known.isOpen || known.lock !== notice.lock) return;
    const { clock } = this.context;
    const grantedAt =
      'sentAt' in origin
        ? origin.sentAt
        : this.servers.shardOf(known.lock).server?.serverClock.earliest(notice.serverTime, clock.now());
    known.onHandoff(notice, grantedAt);
  }

  /** Whether a notice is about a lock of this namespace and bucket. Otherwise a stranger could make this process act on keys that are no locks. */
  #concernsUs(lock: string, origin: NoticeOrigin): boolean {
    if ('sentAt' in origin) return true;
    return this.layout.keyOf(lock) !== undefined && this.servers.shardOf(lock).channel === origin.channel;
  }

  /** Messages may have been missed. */
  askAgain(): void {
    for (const known of this.#oldestFirst(({ isOpen }) => isOpen)) known.askAgain();
  }

  /** Each that waits asks, which shows that this process lives and finds a grant whose message was lost. */
  askAgainLater(): void {
    this.#timer ??= this.context.clock.setTimer(() => {
      this.#timer = undefined;
      const waiting = this.#waiting();
      for (const known of waiting) known.repeat();
      if (waiting.length > 0) this.askAgainLater();
    }, ASK_AGAIN);
  }

  /** Requests that wait on a server that cannot be reached fail: the core asks again when it is back. */
  onDown(cause: unknown): void {
    for (const known of this.#waiting()) {
      if (!this.servers.shardOf(known.lock).batcher.isReachable) known.fail(cause);
    }
  }

  /** The backend closes: no caller is left waiting. */
  close(cause: unknown): void {
    if (this.#timer !== undefined) this.context.clock.clearTimer(this.#timer);
    for (const known of this.#requests.values()) known.fail(cause);
    this.#requests.clear();
  }

  #waiting(): RedisRequest[] {
    return this.#oldestFirst(({ isWaiting }) => isWaiting);
  }

  /** Because where the queue was lost, the first that asks has the lock. */
  #oldestFirst(which: (known: RedisRequest) => boolean): RedisRequest[] {
    return this.#requests
      .values()
      .filter(which)
      .sort((one, other) => one.request.since - other.request.since);
  }

  #releaseUnknown({ lock, holder }: { readonly lock: string; readonly holder: string }): void {
    this.servers.shardOf(lock).batcher.add({
      lock,
      weight: HEAVY,
      encode: () => (this.#requests.has(holder) ? undefined : ['R', holder, '0']),
      // Without an answer the server ends the provisional lease.
      onReply: () => undefined,
      onFailure: () => undefined,
    });
  }
}
