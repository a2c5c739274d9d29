import type { Timer } from '../../api/clock.js';
import type { AcquireRequest, BackendContext, Grant } from '../../api/lock-provider.js';
import { HolderTable } from './holder-table.js';
import type { SeenHolders } from '../shared/seen-holders.js';
import { HEAVY } from './client/batcher.js';
import type { KeyLayout } from './key-layout.js';
import { POLL_INTERVAL, RedisRequest } from './redis-request.js';
import type { NoticeOrigin, RedisServers } from './redis-servers.js';
import { type Notice, readFreeIn, readNotice } from './wire.js';

/**
 * All of this process's requests by id, from the first acquire to the release, because a message may refer to any of
 * them.
 *
 * A grant for an unknown id is released: the server must have restored that id from a snapshot or a lagging replica and
 * would block other processes on its behalf.
 */
export class RedisRequests {
  readonly #requests = new HolderTable<RedisRequest>();
  /** Polls for each waiting request. */
  #timer: Timer | undefined;

  constructor(
    readonly context: BackendContext,
    private readonly servers: RedisServers,
    private readonly layout: KeyLayout,
    /** Whether every grant must be confirmed before it is reported. */
    readonly confirmsAll: boolean,
    readonly holders: SeenHolders,
  ) {}

  acquire(request: AcquireRequest<RedisRequest>, lock: string): Promise<Grant | 'busy' | 'not-asked'> {
    const own = (request.state ??= new RedisRequest(request, lock, this.servers.shardOf(lock), this));
    // Register before sending, because a message about the grant may overtake the reply.
    this.#requests.set(request.id, own);
    return own.acquire();
  }

  /** From now on, a grant for this holder is released. */
  forget(holder: string): void {
    this.#requests.delete(holder);
  }

  onNotice(text: string, origin: NoticeOrigin): void {
    const frees = readFreeIn(text);
    if (frees) {
      // The acquire may still be in flight: its result may come later in the same reply, or the message may have
      // overtaken it.
      this.#requests.get(frees.holder)?.wakeIn(frees.freeIn);
      return;
    }
    const notice = readNotice(text);
    if (!notice || !this.#isOurLock(notice.lock, origin)) return;
    const known = this.#requests.get(notice.holder);
    if (!known) {
      this.#releaseOrphan(notice);
      return;
    }
    // The message may arrive after an acquire has already found the grant.
    if (!known.isOpen || known.lock !== notice.lock) return;
    known.onHandoff(notice, this.#grantedAt(notice, known, origin));
  }

  /** When the lock was granted (monotonic clock); `undefined` if unknown, so that the grant is confirmed first. */
  #grantedAt({ serverTime }: Notice, { shard }: RedisRequest, origin: NoticeOrigin): number | undefined {
    if ('sentAt' in origin) return origin.sentAt;
    return origin.isBroadcast ? undefined : shard.server?.serverClock.earliest(serverTime, this.context.clock.now());
  }

  /**
   * Whether a notice is about a lock in this namespace and bucket. Otherwise, any publisher could make this process
   * change unrelated keys.
   */
  #isOurLock(lock: string, origin: NoticeOrigin): boolean {
    if ('sentAt' in origin) return true;
    return this.layout.keyOf(lock) !== undefined && this.servers.shardOf(lock).channel === origin.channel;
  }

  /** Polls for every open request, because messages may have been missed. */
  pollAll(): void {
    for (const known of this.#oldestFirst(({ isOpen }) => isOpen)) known.pollAfterReply();
  }

  /**
   * Schedules the next poll for waiting requests. Polls show that this process is alive and find grants whose messages
   * were lost.
   */
  schedulePoll(): void {
    this.#timer ??= this.context.clock.setTimer(() => {
      this.#timer = undefined;
      const waiting = this.#waiting();
      for (const known of waiting) known.poll();
      if (waiting.length > 0) this.schedulePoll();
    }, POLL_INTERVAL);
  }

  /** Fails requests that are waiting on an unreachable server. The core resends them after recovery. */
  onDown(cause: unknown): void {
    for (const known of this.#waiting()) {
      if (!known.shard.batcher.isReachable) known.fail(cause);
    }
  }

  /** Fails all open requests, so no callers are left waiting when the backend closes. */
  close(cause: unknown): void {
    if (this.#timer !== undefined) this.context.clock.clearTimer(this.#timer);
    for (const known of this.#requests.values()) known.fail(cause);
    this.#requests.clear();
  }

  #waiting(): RedisRequest[] {
    return this.#oldestFirst(({ isWaiting }) => isWaiting);
  }

  /** Oldest first, because the first acquire gets the lock if the server has lost its queue. */
  #oldestFirst(which: (known: RedisRequest) => boolean): RedisRequest[] {
    return this.#requests
      .values()
      .filter(which)
      .sort((one, other) => one.request.since - other.request.since);
  }

  #releaseOrphan({ lock, holder }: { readonly lock: string; readonly holder: string }): void {
    this.servers.shardOf(lock).batcher.add({
      lock,
      weight: HEAVY,
      encode: () => (this.#requests.get(holder) ? undefined : ['R', holder, '0']),
      // If the release fails, the provisional lease expires.
      onReply: () => undefined,
      onFailure: () => undefined,
    });
  }
}
