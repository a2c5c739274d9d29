import type { Timer } from '../../api/clock.js';
import type { AcquireRequest, Grant, ReleaseOutcome, RenewOutcome } from '../../api/lock-provider.js';
import { firstToken } from '../../core/toolkit/fencing-token.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { HEAVY, LIGHT, NOT_RUN, type Operation, type OperationArguments, REPEATED } from './client/batcher.js';
import type { RedisRequests } from './redis-requests.js';
import { unavailable } from './unavailable.js';
import {
  encodeQueueingAsk,
  encodeRelease,
  encodeRenewal,
  encodeSingleAsk,
  type HeldReply,
  isBusyReply,
  type Notice,
  type QueuedReply,
  readHeld,
  readHolder,
  readQueued,
} from './wire.js';

/** How often a process asks again for each lock that it waits for, in ms: well inside the 3 s after which it counts as dead. */
export const ASK_AGAIN = 1_000;
/** How many callers of a process may have a share of a limited lock one after the other. */
const COHORT = 64;

/**
 * How far a request has come.
 *
 * - `asking`: the first answer is awaited, or the first after a failure.
 * - `queued`: the server has queued the request, which asks again from time to time. A message announces the grant.
 * - `unconfirmed`: the server has granted the lock, and is asked whether it still has the grant before that is answered.
 * - `granted`: the request was answered with a grant.
 * - `unknown`: the request was answered without one. The core asks again, or releases it.
 */
type State = 'asking' | 'queued' | 'unconfirmed' | 'granted' | 'unknown';

/**
 * One request for one lock on this Redis, from its first ask to its release. Nobody else changes it.
 *
 * The request is itself the operation by which it asks: one ask is in flight at a time, because two could be granted twice.
 *
 * A grant that may have run out on its way, or whose provisional lease would not be renewed, is confirmed before it is answered.
 */
export class RedisRequest implements Operation {
  #state: State = 'unknown';
  #weight = HEAVY;
  /** The request before it in its chain, for its first ask. */
  #after: RedisRequest | undefined;
  /** Since when an ask is in flight, on the monotonic clock. */
  #askingSince: number | undefined;
  /** As soon as the ask in flight has queued the request, it asks once more: the server may have executed that ask before what this process learned since. */
  #isToRepeat = false;
  /** A confirmation is in flight. */
  #isConfirming = false;
  /** An ask may have reached a server. */
  #sent = false;
  /** The request may be in the server's queue. */
  #mayBeQueued = false;
  /** When the oldest caller came: at the last ask, and at the last one that the server has queued. */
  #askedFor: number | undefined;
  #placedFor: number | undefined;
  /** The number of callers at the last ask. */
  #callers = 1;
  /** The last of the tokens that the server has given to the request. */
  #token = 0n;
  /** The number of these tokens: one for each caller that may hold the lock. */
  #tokens = 1;
  #resolve!: (answer: Grant | 'busy' | 'not-asked') => void;
  #reject!: (error: Error) => void;
  /** The listener to the abort of the signal, from the first place in the queue until the answer. */
  #onAbort: (() => void) | undefined;
  /** The ask at the time when the lock frees itself, if that is earlier than the next one anyway. */
  #wakeUp: { readonly timer: Timer; readonly at: number } | undefined;

  constructor(
    readonly request: AcquireRequest,
    readonly lock: string,
    private readonly requests: RedisRequests,
  ) {}

  /** An answer is awaited. */
  get isOpen(): boolean {
    return this.#state !== 'granted' && this.#state !== 'unknown';
  }

  /** An answer is awaited for longer than one ask takes. */
  get isWaiting(): boolean {
    return this.#state === 'queued' || this.#state === 'unconfirmed';
  }

  get isGranted(): boolean {
    return this.#state === 'granted';
  }

  get after(): RedisRequest | undefined {
    return this.#after;
  }

  /** The weight of the last ask. */
  get weight(): number {
    return this.#weight;
  }

  /** For how many ms the server has not answered an ask; `Infinity` while a grant waits for its confirmation. */
  get unansweredFor(): number {
    if (this.#state === 'unconfirmed') return Infinity;
    return this.#askingSince === undefined ? 0 : this.requests.context.clock.now() - this.#askingSince;
  }

  /** Asks, the first time or again after a failure. */
  acquire(): Promise<Grant | 'busy' | 'not-asked'> {
    this.#state = 'asking';
    this.#after = this.request.after?.state as RedisRequest | undefined;
    // After a failure: the queue may be another one.
    this.#placedFor = undefined;
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      this.#ask(HEAVY);
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
        // Another token: the provisional lease had run out and the lock was granted to us again. The tokens in use are overtaken.
        if (held?.token === token) resolve({ validUntil: validUntil(sentAt, Math.min(held.left, lease)) });
        else resolve(held || reply === 0 ? 'lost' : 'unknown');
      };
      const onFailure = () => {
        resolve('unknown');
      };
      this.requests.servers
        .shardOf(lock)
        .confirm({ lock, weight: LIGHT, encode: () => fields, onReply, onFailure }, lease);
    });
  }

  /** Ends the request, whatever has become of it. */
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
      this.requests.servers
        .shardOf(lock)
        .batcher.add({ lock, weight: HEAVY, encode: () => fields, onReply, onFailure });
    });
  }

  /** The outcome is unknown, unless the request is answered. */
  fail(cause: unknown): void {
    if (!this.isOpen) return;
    this.#end('unknown');
    this.#reject(unavailable(this.requests.context.name, this.request.key, cause, this.#sent));
  }

  /** Asks again, unless a question is in flight. */
  repeat(): void {
    if (!this.isOpen || this.#askingSince !== undefined || this.#isConfirming) return;
    this.#after = undefined;
    this.#ask(REPEATED);
  }

  /** Asks again, also if an ask is in flight: when that is answered. */
  askAgain(): void {
    if (this.#askingSince === undefined) this.repeat();
    else this.#isToRepeat = true;
  }

  /** Asks again in so many ms, when the lock frees itself unless it is renewed. */
  wakeIn(freeIn: number): void {
    if (!this.isOpen || freeIn >= ASK_AGAIN) return;
    const { clock } = this.requests.context;
    const at = clock.now() + freeIn;
    if (this.#wakeUp && at >= this.#wakeUp.at) return;
    this.#stopWaking();
    const wake = () => {
      this.#wakeUp = undefined;
      this.askAgain();
    };
    // A key that ends in 0 ms is there until the next one.
    this.#wakeUp = { timer: clock.setTimer(wake, freeIn + 1), at };
  }

  /** The lock was handed to the request at `grantedAt` on the monotonic clock; `undefined` if that is not known. */
  onHandoff({ token, tokens, provisional }: Notice, grantedAt: number | undefined): void {
    // Unless an ask is in flight that may queue it once more.
    this.#mayBeQueued = this.#askingSince !== undefined;
    this.#grant(token, tokens, grantedAt === undefined ? -Infinity : validUntil(grantedAt, provisional), false);
  }

  /** The fields of an ask; `undefined` when the request is answered. */
  encode(now: number): OperationArguments | undefined {
    if (!this.isOpen) {
      this.#askingSince = undefined;
      return undefined;
    }
    const { request } = this;
    const { since } = request;
    this.#callers = request.mode === 'exclusive' && request.minHold === 0 ? request.callers : 1;
    this.#askedFor = since;
    this.#sent = true;
    // A request that has a place in the queue keeps it, also when the wait of its caller is over.
    if (request.wait === 0 && this.#placedFor === undefined) {
      return encodeSingleAsk(request, this.#callers, this.#mayBeQueued);
    }
    this.#mayBeQueued = true;
    return encodeQueueingAsk(request, this.#callers, now - since, since === this.#placedFor);
  }

  /** An ask is answered. */
  onReply(reply: unknown, sentAt: number): void {
    this.#askingSince = undefined;
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
    } else this.fail(new Error('The server answered something that is not an answer of the lock script.'));
  }

  /** An ask has failed. */
  onFailure(error: unknown): void {
    this.#askingSince = undefined;
    this.fail(error);
  }

  #ask(weight: number): void {
    this.#weight = weight;
    this.#askingSince = this.requests.context.clock.now();
    this.#isToRepeat = false;
    this.requests.servers.shardOf(this.lock).batcher.add(this);
  }

  #onHeld({ token, left, isWhole }: HeldReply, sentAt: number): void {
    if (isWhole) this.#mayBeQueued = false;
    // A message should have announced the grant.
    else if (this.#state === 'queued') this.requests.servers.shardOf(this.lock).server?.subscription.probe();
    this.#grant(token, isWhole ? this.#callers : 1, validUntil(sentAt, left), isWhole);
  }

  #onQueued({ serverTime, freeIn }: QueuedReply, sentAt: number): void {
    const { requests } = this;
    this.#placedFor = this.#askedFor;
    requests.servers.shardOf(this.lock).server?.serverClock.observe(sentAt, serverTime);
    requests.askAgainLater();
    this.wakeIn(freeIn);
    if (this.#state !== 'queued') this.#queue();
    if (this.#isToRepeat) this.repeat();
  }

  /** The request waits in the server's queue, until it is granted the lock or its signal aborts. */
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

  /** @param callers how many may have the lock one after the other; `token` is that of the last */
  #grant(token: bigint, callers: number, until: number, isWhole: boolean): void {
    this.#token = token;
    this.#tokens = callers;
    const isTooShort = !isWhole && this.request.minHold > 0;
    if (this.requests.confirmsAll || isTooShort) this.#confirm();
    else this.#hold(until);
  }

  /** Renews the grant to its whole lease before it is answered, if the server still has it. */
  #confirm(): void {
    this.#state = 'unconfirmed';
    if (this.#isConfirming) return;
    this.#isConfirming = true;
    const { requests, request, lock } = this;
    requests.askAgainLater();
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
    requests.servers.shardOf(lock).confirm(confirmation, request.lease);
  }

  #onConfirmed(reply: unknown, sentAt: number): void {
    const held = readHeld(reply, this.request.lease);
    if (!held) {
      this.repeat();
      return;
    }
    // Another token: the provisional lease had run out, and it was granted the lock again. How many callers that was for is unknown.
    if (held.token !== this.#token) this.#tokens = 1;
    this.#token = held.token;
    this.#hold(validUntil(sentAt, held.left));
  }

  /** Answers the grant, which is confirmed again if it may have run out meanwhile. */
  #hold(until: number): void {
    if (until <= this.requests.context.clock.now()) {
      this.#confirm();
      return;
    }
    this.#end('granted');
    const { mode, lease } = this.request;
    const fencingToken = firstToken(mode, this.#token, this.#tokens);
    const followers = mode === 'limited' ? COHORT - 1 : this.#tokens - 1;
    this.#resolve({ fencingToken, followers, validUntil: until, lease });
  }

  /** Answers that the lock is not had. */
  #leave(answer: 'busy' | 'not-asked' = 'busy'): void {
    this.#end('unknown');
    this.#resolve(answer);
  }

  #end(state: 'granted' | 'unknown'): void {
    this.#state = state;
    this.#after = undefined;
    if (this.#wakeUp) this.#stopWaking();
    if (!this.#onAbort) return;
    this.request.signal.removeEventListener('abort', this.#onAbort);
    this.#onAbort = undefined;
  }

  #stopWaking(): void {
    if (this.#wakeUp) this.requests.context.clock.clearTimer(this.#wakeUp.timer);
    this.#wakeUp = undefined;
  }
}
