import type { Timer } from '../../api/clock.js';
import type { AcquireRequest, BackendContext, Grant } from '../../api/lock-provider.js';
import { HolderTable } from '../../core/toolkit/holder-table.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { HEAVY, type Operation, REPEATED } from './batcher.js';
import { NotSent } from './client/redis-connection.js';
import type { KeyLayout } from './key-layout.js';
import { RedisRequest, requestOf } from './redis-request.js';
import type { Servers } from './servers.js';
import { unavailable } from './unavailable.js';
import { readFreeIn, readHeld, readNotice, readQueued } from './wire.js';

/** How often a process asks again for each lock that it waits for, in ms: well inside the 3 s after which it counts as dead. */
const ASK_AGAIN = 1_000;
/** How many callers of a process may have a share of a limited lock one after the other. */
const COHORT = 64;

/** Where a notice comes from: the reply to a call that was sent at `sentAt`, or a channel, on which others may publish as well. */
type NoticeOrigin = { readonly sentAt: number } | { readonly channel: string };

/**
 * All requests of this process, by id: from the first ask until the release, because the server may name them in a message.
 *
 * A request asks, waits in the server's queue, and turns what it is granted into an answer. A grant that may have run out on its way, or
 * whose provisional lease would not be renewed, is confirmed before it is answered. A message about an id that is not here is answered
 * with a release: the server has remembered it from a snapshot or a replica that lagged, and would keep others out for it.
 */
export class RedisRequests {
  readonly #requests = new HolderTable<RedisRequest>();
  /** Asks again for each request that is queued. */
  #timer: Timer | undefined;
  /** When requests ask again whose lock frees itself earlier. */
  readonly #wakeUps = new Map<RedisRequest, { readonly timer: Timer; readonly at: number }>();

  constructor(
    private readonly context: BackendContext,
    private readonly servers: Servers,
    private readonly layout: KeyLayout,
    /** Every grant must be confirmed before it is answered. */
    private readonly confirmsAll: boolean,
  ) {}

  acquire(request: AcquireRequest, lock: string): Promise<Grant | 'busy'> {
    let known = requestOf(request);
    if (known === undefined) {
      known = new RedisRequest(request, lock);
      request.state = known;
    }
    // Before it is sent: a message about the grant may overtake the reply.
    this.#requests.set(known.holder, known);
    const answer = known.begin();
    this.#ask(known, HEAVY);
    return answer;
  }

  /** For how many ms the server has not answered a question of it; `Infinity` while a grant waits for its confirmation. */
  unansweredFor(known: RedisRequest): number {
    if (known.isUnconfirmed) return Infinity;
    return known.isAsking ? this.context.clock.now() - known.askedAt : 0;
  }

  /** It is released from now on. */
  end(known: RedisRequest): void {
    this.#requests.delete(known.holder);
    if (this.#wakeUps.size > 0) this.#stopWaking(known);
    if (known.isOpen) known.settle('busy');
  }

  onNotice(text: string, origin: NoticeOrigin): void {
    const frees = readFreeIn(text);
    if (frees) {
      const known = this.#requests.get(frees.holder);
      // Its ask may be unanswered: the answer comes later in the same reply, or a message has overtaken it.
      if (known?.isOpen) this.#wakeIn(known, frees.freeIn);
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
    // Unless an ask is in flight that may queue it once more.
    known.mayBeQueued = known.isAsking;
    const { clock } = this.context;
    const grantedAt =
      'sentAt' in origin ? origin.sentAt : this.servers.clockOf(known.lock)?.earliest(notice.serverTime, clock.now());
    const until = grantedAt === undefined ? -Infinity : validUntil(grantedAt, notice.provisional);
    this.#grant(known, notice.token, notice.tokens, until, false);
  }

  /** Whether a notice is about a lock of this namespace and bucket. Otherwise a stranger could make this process act on keys that are no locks. */
  #concernsUs(lock: string, origin: NoticeOrigin): boolean {
    if ('sentAt' in origin) return true;
    return this.layout.keyOf(lock) !== undefined && this.servers.channelOf(lock) === origin.channel;
  }

  /** Messages may have been missed. */
  askAgain(): void {
    for (const known of this.#requests.values()) known.isToRepeat = known.isAsking;
    for (const known of this.#waiting()) this.#repeat(known);
  }

  /** Requests that wait on a server that cannot be reached fail: the core asks again when it is back. */
  onDown(cause: unknown): void {
    for (const known of this.#waiting()) {
      if (!this.servers.batcherOf(known.lock).isReachable) this.#fail(known, cause);
    }
  }

  /** The backend closes: no caller is left waiting. */
  close(cause: unknown): void {
    if (this.#timer !== undefined) this.context.clock.clearTimer(this.#timer);
    for (const known of this.#requests.values()) {
      this.#stopWaking(known);
      if (known.isOpen) this.#fail(known, cause);
    }
    this.#requests.clear();
  }

  /** Those that are not answered, and not about to be; the oldest first, because where the queue was lost the first that asks has the lock. */
  #waiting(): RedisRequest[] {
    return this.#requests
      .values()
      .filter((known) => known.state === 'queued' || known.isUnconfirmed)
      .sort((one, other) => one.request.since - other.request.since);
  }

  #ask(known: RedisRequest, weight: number): void {
    known.isAsking = true;
    known.askedAt = this.context.clock.now();
    known.isToRepeat = false;
    const { sent, mayBeQueued } = known;
    const operation: Operation = {
      lock: known.lock,
      weight,
      encode: (now) => known.encodeAsk(now),
      onReply: (reply, sentAt) => {
        known.isAsking = false;
        if (known.isOpen) this.#onReply(known, reply, sentAt);
      },
      onFailure: (error) => {
        known.isAsking = false;
        if (error instanceof NotSent) Object.assign(known, { sent, mayBeQueued });
        if (known.isOpen) this.#fail(known, error);
      },
    };
    this.servers.batcherOf(known.lock).add(operation);
  }

  /** Asks again, unless a question of the request is in flight: two at a time could be granted twice. */
  #repeat(known: RedisRequest): void {
    if (known.isAsking || known.isConfirming || !known.isOpen) return;
    this.#ask(known, REPEATED);
  }

  #onReply(known: RedisRequest, reply: unknown, sentAt: number): void {
    const held = readHeld(reply, known.request.lease);
    if (held) {
      if (held.isWhole) known.mayBeQueued = false;
      // A message should have announced the grant.
      else if (known.state === 'queued') this.servers.probe(known.lock);
      this.#grant(known, held.token, held.isWhole ? known.callers : 1, validUntil(sentAt, held.left), held.isWhole);
      return;
    }
    const queued = readQueued(reply);
    if (queued) {
      known.placedFor = known.askedFor;
      this.servers.clockOf(known.lock)?.observe(sentAt, queued.serverTime);
      const { isUnconfirmed } = known;
      known.isUnconfirmed = false;
      // Callers whose wait is over have waited for the confirmation alone.
      if (isUnconfirmed && known.state === 'queued') known.request.waits();
      this.#onQueued(known, queued.freeIn);
      if (known.isToRepeat) this.#repeat(known);
    } else if (reply === 'b') {
      this.#requests.delete(known.holder);
      known.settle('busy');
    } else this.#fail(known, new Error('The server answered something that is not an answer of the lock script.'));
  }

  #onQueued(known: RedisRequest, freeIn: number): void {
    this.#lookLater();
    this.#wakeIn(known, freeIn);
    if (known.state === 'queued') return;
    known.state = 'queued';
    const { request } = known;
    request.waits();
    if (!known.isOpen) return;
    // The core releases it.
    const leave = () => {
      known.settle('busy');
    };
    if (request.signal.aborted) leave();
    else known.whenAborted(leave);
  }

  /** @param callers how many may have the lock one after the other; `token` is that of the last */
  #grant(known: RedisRequest, token: bigint, callers: number, until: number, isWhole: boolean): void {
    known.token = token;
    known.tokens = callers;
    const { renew, minHold } = known.request;
    const isTooShort = !isWhole && (!renew || minHold > 0);
    if (this.confirmsAll || isTooShort || until <= this.context.clock.now()) this.#confirm(known);
    else this.#hold(known, until);
  }

  /** Renews the hold to its whole lease before it is answered, if the server still has it. */
  #confirm(known: RedisRequest): void {
    known.isUnconfirmed = true;
    if (known.isConfirming) return;
    known.isConfirming = true;
    const { lock } = known;
    this.#lookLater();
    this.servers.confirmerOf(lock, known.request.lease).add({
      lock,
      weight: HEAVY,
      encode: known.encodeConfirmation,
      onReply: (reply, sentAt) => {
        known.isConfirming = false;
        if (known.isOpen) this.#onConfirmed(known, reply, sentAt);
      },
      onFailure: (error) => {
        known.isConfirming = false;
        if (known.isOpen) this.#fail(known, error);
      },
    });
  }

  #onConfirmed(known: RedisRequest, reply: unknown, sentAt: number): void {
    const held = readHeld(reply, known.request.lease);
    if (!held) {
      this.#repeat(known);
      return;
    }
    // Another token: the provisional lease had run out, and it was granted the lock again. How many callers that was for is unknown.
    if (held.token !== known.token) known.tokens = 1;
    known.token = held.token;
    const until = validUntil(sentAt, held.left);
    if (until <= this.context.clock.now()) this.#confirm(known);
    else this.#hold(known, until);
  }

  #hold(known: RedisRequest, until: number): void {
    if (this.#wakeUps.size > 0) this.#stopWaking(known);
    known.isUnconfirmed = false;
    const { mode, lease } = known.request;
    // The tokens of limited locks are the server's own: a resource that compares them would refuse all holders but the latest.
    const fencingToken = mode === 'limited' ? null : known.token - BigInt(known.tokens - 1);
    const followers = mode === 'limited' ? COHORT - 1 : known.tokens - 1;
    known.settle({ fencingToken, followers, validUntil: until, lease });
  }

  /** The outcome is unknown. */
  #fail(known: RedisRequest, cause: unknown): void {
    this.#stopWaking(known);
    known.isUnconfirmed = false;
    known.fail(unavailable(this.context.name, known.request.key, cause, known.sent));
  }

  #releaseUnknown({ lock, holder }: { readonly lock: string; readonly holder: string }): void {
    this.servers.batcherOf(lock).add({
      lock,
      weight: HEAVY,
      encode: () => (this.#requests.has(holder) ? undefined : ['R', holder, '0']),
      // Without an answer the server ends the provisional lease.
      onReply: () => undefined,
      onFailure: () => undefined,
    });
  }

  /** The lock frees itself in so many ms unless it is renewed. Asks for it then, if that is earlier than it asks anyway. */
  #wakeIn(known: RedisRequest, freeIn: number): void {
    if (freeIn >= ASK_AGAIN) return;
    const { clock } = this.context;
    const at = clock.now() + freeIn;
    const wakeUp = this.#wakeUps.get(known);
    if (wakeUp && at >= wakeUp.at) return;
    this.#stopWaking(known);
    const wake = () => {
      this.#wakeUps.delete(known);
      known.isToRepeat = known.isAsking;
      this.#repeat(known);
    };
    // A key that ends in 0 ms is there until the next one.
    this.#wakeUps.set(known, { timer: clock.setTimer(wake, freeIn + 1), at });
  }

  #stopWaking(known: RedisRequest): void {
    const wakeUp = this.#wakeUps.get(known);
    if (!wakeUp) return;
    this.context.clock.clearTimer(wakeUp.timer);
    this.#wakeUps.delete(known);
  }

  /** Each that waits asks, which shows that this process lives and finds a grant whose message was lost. */
  #lookLater(): void {
    this.#timer ??= this.context.clock.setTimer(() => {
      this.#timer = undefined;
      const waiting = this.#waiting();
      for (const known of waiting) this.#repeat(known);
      if (waiting.length > 0) this.#lookLater();
    }, ASK_AGAIN);
  }
}
