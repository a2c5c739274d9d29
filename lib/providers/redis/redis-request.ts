import type { Timer } from '../../api/clock.js';
import type { AcquireRequest, Grant, ReleaseOutcome, RenewOutcome } from '../../api/lock-provider.js';
import { firstToken } from '../../core/toolkit/fencing-token.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { HEAVY, LIGHT, NOT_RUN, type Operation, type OperationArguments, POLL } from './client/batcher.js';
import type { RedisRequests } from './redis-requests.js';
import type { Shard } from './redis-servers.js';
import { unavailable } from './unavailable.js';
import {
  encodeQueueingAcquire,
  encodeRelease,
  encodeRenewal,
  encodeTryAcquire,
  type HeldReply,
  isBusyReply,
  type Notice,
  type QueuedReply,
  readHeld,
  readHolder,
  readQueued,
} from './wire.js';

/** How often a queued request polls, in ms: well below the 3 s after which its process counts as dead. */
export const POLL_INTERVAL = 1_000;
/** How many of a process's callers may use one grant of a limited lock, one after another. */
const COHORT = 64;

/**
 * A request's state.
 *
 * - `acquiring`: waiting for the first reply, or for the first one after a failure.
 * - `queued`: in the server's queue and polling. A message announces the grant.
 * - `unconfirmed`: the server has granted the lock, and a renewal must confirm the grant before it is reported to the
 *   core.
 * - `granted`: the grant has been reported.
 * - `unknown`: ended without a grant. The core resends the request or releases it.
 */
type State = 'acquiring' | 'queued' | 'unconfirmed' | 'granted' | 'unknown';

/**
 * One request for a lock, from its first acquire to its release.
 *
 * This object doubles as the acquire operation that it sends. At most one acquire is in flight, because with two, the
 * server could grant both.
 *
 * A grant is confirmed before it is reported if it may have expired in transit, or if the provisional lease wouldn't
 * otherwise be renewed.
 */
export class RedisRequest implements Operation {
  /** The last acquire's weight. */
  weight = HEAVY;
  /** The previous request in the chain, needed by the first acquire. */
  after: RedisRequest | undefined;
  #state: State = 'unknown';
  /** When the acquire in flight was sent (monotonic clock). */
  #acquireSentAt: number | undefined;
  /**
   * Whether to poll when the acquire in flight returns, because the server may have run it before the change that this
   * process was notified of.
   */
  #pollAfterReply = false;
  #isConfirming = false;
  /** Whether an acquire may have reached a server. */
  #sent = false;
  /** Whether the request may be in the server's queue. */
  #mayBeQueued = false;
  /** The oldest caller's arrival time, as sent with the last acquire. */
  #sentSince: number | undefined;
  /** The oldest caller's arrival time, which determines the position in the server's queue. */
  #queuedSince: number | undefined;
  /** The number of callers in the last acquire. */
  #callers = 1;
  /** The last token in the block that the server granted. */
  #token = 0n;
  /** The size of that block: one token per caller that may hold the lock. */
  #tokens = 1;
  #resolve: ((answer: Grant | 'busy' | 'not-asked') => void) | undefined;
  #reject: ((error: Error) => void) | undefined;
  /** The listener on the caller's signal while the request is queued. */
  #onAbort: (() => void) | undefined;
  /** Polls when the lock becomes free without a release, if that happens before the next poll. */
  #wakeTimer: { readonly timer: Timer; readonly at: number } | undefined;

  constructor(
    readonly request: AcquireRequest,
    readonly lock: string,
    readonly shard: Shard,
    private readonly requests: RedisRequests,
  ) {}

  /** Whether the core is still waiting for the outcome. */
  get isOpen(): boolean {
    return this.#state !== 'granted' && this.#state !== 'unknown';
  }

  /** Whether the outcome requires more than the reply to one acquire. */
  get isWaiting(): boolean {
    return this.#state === 'queued' || this.#state === 'unconfirmed';
  }

  /** How long the acquire in flight has gone without a reply, in ms; `Infinity` while a grant awaits confirmation. */
  get unansweredFor(): number {
    if (this.#state === 'unconfirmed') return Infinity;
    return this.#acquireSentAt === undefined ? 0 : this.requests.context.clock.now() - this.#acquireSentAt;
  }

  /** Sends the first acquire, or the first one after a failure. */
  acquire(): Promise<Grant | 'busy' | 'not-asked'> {
    this.#state = 'acquiring';
    this.after = this.request.after?.state as RedisRequest | undefined;
    // After a failure, the position in the queue may have been lost.
    this.#queuedSince = undefined;
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      this.#sendAcquire(HEAVY);
    });
  }

  renew(lease: number): Promise<RenewOutcome> {
    if (this.#state !== 'granted') return Promise.resolve('lost');
    const { lock } = this;
    const token = this.#token;
    const fields = encodeRenewal(this.request, lease);
    return new Promise((resolve) => {
      const onReply = (reply: unknown, sentAt: number) => {
        const held = readHeld(reply, lease);
        // A different token means that the provisional lease expired and the lock was granted to us again, so the
        // tokens in use are outdated.
        if (held?.token === token) resolve({ validUntil: validUntil(sentAt, Math.min(held.left, lease)) });
        else resolve(held || reply === 0 ? 'lost' : 'unknown');
      };
      const onFailure = () => {
        resolve('unknown');
      };
      this.shard.confirm({ lock, weight: LIGHT, encode: () => fields, onReply, onFailure }, lease);
    });
  }

  /** Ends the request, whatever state it is in. */
  release(keepFor: number): Promise<ReleaseOutcome> {
    this.requests.forget(this.request.id);
    if (this.isOpen) this.#leave();
    if (!this.#sent) return Promise.resolve('lost');
    const { lock } = this;
    const fields = encodeRelease(this.request, keepFor, this.#mayBeQueued);
    return new Promise((resolve) => {
      const onReply = (reply: unknown) => {
        resolve(reply === 1 ? 'released' : reply === 0 ? 'lost' : 'unknown');
      };
      const onFailure = () => {
        resolve('unknown');
      };
      this.shard.batcher.add({ lock, weight: HEAVY, encode: () => fields, onReply, onFailure });
    });
  }

  /** Reports an unknown outcome, unless the core already has one. */
  fail(cause: unknown): void {
    if (!this.isOpen) return;
    this.#end('unknown');
    this.#reject?.(unavailable(this.requests.context.name, this.request.key, cause, this.#sent));
  }

  /** Sends the acquire again, unless an acquire or a confirmation is in flight. */
  poll(): void {
    if (!this.isOpen || this.#acquireSentAt !== undefined || this.#isConfirming) return;
    this.after = undefined;
    this.#sendAcquire(POLL);
  }

  /** Polls now, or when the acquire in flight gets its reply. */
  pollAfterReply(): void {
    if (this.#acquireSentAt === undefined) this.poll();
    else this.#pollAfterReply = true;
  }

  /** Polls in `freeIn` ms, when the lock becomes free unless its holder renews it. */
  wakeIn(freeIn: number): void {
    if (!this.isOpen || freeIn >= POLL_INTERVAL) return;
    const { clock } = this.requests.context;
    const at = clock.now() + freeIn;
    if (this.#wakeTimer && at >= this.#wakeTimer.at) return;
    this.#clearWakeTimer();
    const wake = () => {
      this.#wakeTimer = undefined;
      this.pollAfterReply();
    };
    // A key with 0 ms left exists until the next millisecond.
    this.#wakeTimer = { timer: clock.setTimer(wake, freeIn + 1), at };
  }

  /** Handles a handoff to this request at `grantedAt` (monotonic clock; `undefined` if unknown). */
  onHandoff({ token, tokens, provisional }: Notice, grantedAt: number | undefined): void {
    // An acquire in flight may queue the request again.
    this.#mayBeQueued = this.#acquireSentAt !== undefined;
    this.#grant(token, tokens, grantedAt === undefined ? -Infinity : validUntil(grantedAt, provisional), false);
  }

  /** An acquire's fields, or `undefined` if the core already has the outcome. */
  encode(now: number): OperationArguments | undefined {
    if (!this.isOpen) {
      this.#acquireSentAt = undefined;
      return undefined;
    }
    const { request } = this;
    const { since } = request;
    this.#callers = request.mode === 'exclusive' && request.minHold === 0 ? request.callers : 1;
    this.#sentSince = since;
    this.#sent = true;
    // A queued request keeps its position, even if its oldest caller is no longer waiting.
    if (request.wait === 0 && this.#queuedSince === undefined) {
      return encodeTryAcquire(request, this.#callers, this.#mayBeQueued);
    }
    this.#mayBeQueued = true;
    return encodeQueueingAcquire(request, this.#callers, now - since, since === this.#queuedSince);
  }

  /** Handles the reply to an acquire. */
  onReply(reply: unknown, sentAt: number): void {
    this.#acquireSentAt = undefined;
    if (!this.isOpen) return;
    const held = readHeld(reply, this.request.lease);
    if (held) {
      this.#onHeld(held, sentAt);
      return;
    }
    const queued = readQueued(reply);
    const isBusy = isBusyReply(reply);
    if (queued || isBusy) this.requests.holders.saw(this.request, readHolder(reply), sentAt);
    if (queued) this.#onQueued(queued, sentAt);
    else if (isBusy || reply === NOT_RUN) {
      this.requests.forget(this.request.id);
      this.#leave(isBusy ? 'busy' : 'not-asked');
    } else this.fail(new Error('The reply from the lock script is invalid.'));
  }

  /** Handles the failure of an acquire. */
  onFailure(error: unknown): void {
    this.#acquireSentAt = undefined;
    this.fail(error);
  }

  #sendAcquire(weight: number): void {
    this.weight = weight;
    this.#acquireSentAt = this.requests.context.clock.now();
    this.#pollAfterReply = false;
    this.shard.batcher.add(this);
  }

  #onHeld({ token, left, isFullLease }: HeldReply, sentAt: number): void {
    if (isFullLease) this.#mayBeQueued = false;
    // A message should have announced this grant.
    else if (this.#state === 'queued') this.shard.server?.subscription.probe();
    this.#grant(token, isFullLease ? this.#callers : 1, validUntil(sentAt, left), isFullLease);
  }

  #onQueued({ serverTime, freeIn }: QueuedReply, sentAt: number): void {
    const { requests } = this;
    this.#queuedSince = this.#sentSince;
    this.shard.server?.serverClock.observe(sentAt, serverTime);
    requests.schedulePoll();
    this.wakeIn(freeIn);
    if (this.#state !== 'queued') this.#queue();
    if (this.#pollAfterReply) this.poll();
  }

  /** The server has queued the request, which waits until it is granted or aborted. */
  #queue(): void {
    const { request } = this;
    this.#state = 'queued';
    request.waits();
    if (!this.isOpen || this.#onAbort) return;
    if (request.signal.aborted) {
      this.#leave();
      return;
    }
    this.#onAbort = () => {
      this.#leave();
    };
    request.signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  /** @param token the last token of a block of `callers` tokens */
  #grant(token: bigint, callers: number, until: number, isFullLease: boolean): void {
    this.#token = token;
    this.#tokens = callers;
    const isTooShort = !isFullLease && this.request.minHold > 0;
    if (this.requests.confirmsAll || isTooShort) this.#confirm();
    else this.#hold(until);
  }

  /** Renews the grant to its full lease before it is reported, if the server still has it. */
  #confirm(): void {
    this.#state = 'unconfirmed';
    if (this.#isConfirming) return;
    this.#isConfirming = true;
    const { requests, request, lock } = this;
    requests.schedulePoll();
    const confirmation: Operation = {
      lock,
      weight: HEAVY,
      encode: () => {
        if (this.isOpen) return encodeRenewal(request, request.lease, request.minHold);
        this.#isConfirming = false;
        return undefined;
      },
      onReply: (reply, sentAt) => {
        this.#isConfirming = false;
        if (this.isOpen) this.#onConfirmed(reply, sentAt);
      },
      onFailure: (error) => {
        this.#isConfirming = false;
        this.fail(error);
      },
    };
    this.shard.confirm(confirmation, request.lease);
  }

  #onConfirmed(reply: unknown, sentAt: number): void {
    const held = readHeld(reply, this.request.lease);
    if (!held) {
      this.poll();
      return;
    }
    // A different token means that the provisional lease expired and the lock was granted again, for an unknown number
    // of callers.
    if (held.token !== this.#token) this.#tokens = 1;
    this.#token = held.token;
    this.#hold(validUntil(sentAt, held.left));
  }

  /** Reports the grant, or confirms it again if it may have expired by now. */
  #hold(until: number): void {
    if (until <= this.requests.context.clock.now()) {
      this.#confirm();
      return;
    }
    this.#end('granted');
    const { mode, lease } = this.request;
    const fencingToken = firstToken(mode, this.#token, this.#tokens);
    const followers = mode === 'limited' ? COHORT - 1 : this.#tokens - 1;
    this.#settle({ fencingToken, followers, validUntil: until, lease });
  }

  /** Reports that the lock was not acquired. */
  #leave(answer: 'busy' | 'not-asked' = 'busy'): void {
    this.#end('unknown');
    this.#settle(answer);
  }

  #settle(answer: Grant | 'busy' | 'not-asked'): void {
    const resolve = this.#resolve;
    // Otherwise, a held lock would keep the promise alive, which takes 300 bytes.
    this.#resolve = this.#reject = undefined;
    resolve?.(answer);
  }

  #end(state: 'granted' | 'unknown'): void {
    this.#state = state;
    this.after = undefined;
    if (this.#wakeTimer) this.#clearWakeTimer();
    if (!this.#onAbort) return;
    this.request.signal.removeEventListener('abort', this.#onAbort);
    this.#onAbort = undefined;
  }

  #clearWakeTimer(): void {
    if (this.#wakeTimer) this.requests.context.clock.clearTimer(this.#wakeTimer.timer);
    this.#wakeTimer = undefined;
  }
}
