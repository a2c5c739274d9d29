import type { LockError } from '../../api/errors.js';
import type { LimitShare, LockMode } from '../../api/lock-mode.js';
import type { AcquireRequest, Grant } from '../../api/lock-provider.js';
import { HeldGrant } from '../hold/held-grant.js';
import { answerOr } from '../toolkit/answer-or.js';
import { detached } from '../toolkit/detached.js';
import { promised } from '../toolkit/promised.js';
import { isRetryable, wasSent } from '../toolkit/retryable.js';
import { backOff } from '../toolkit/timing.js';
import type { KeyQueue } from './key-queue.js';
import { NOT_ASKED } from './lock-observer.js';
import { NEW, OVER, type Over, type Pausing, type Sent } from './request-stage.js';
import type { Waiter } from './waiter.js';

/** The most callers that one grant serves one after the other. */
const LARGEST_COHORT = 64;
const RETRY = { first: 50, most: 1_000 };

/**
 * A lock that this process asks a backend for under one id: on behalf of the oldest waiter of a queue, which it outlives if it fits the next. When it is
 * granted, a {@link HeldGrant} follows it. What happens to it, it reports to its queue.
 *
 * Its questions look at the clock and change nothing.
 */
export class KeyRequest implements AcquireRequest {
  readonly id: string;
  readonly key: string;
  readonly mode: LockMode;
  readonly limited: LimitShare | undefined;
  readonly lease: number;
  readonly minHold: number;
  readonly otherKeysHeld: number;
  /** The backend's own. */
  state: unknown;
  seen: unknown;
  #stage: Pausing | Sent | HeldGrant | Over = NEW;
  /** The waiter that it asks for now. */
  #oldest: Waiter | undefined;
  /** How often it was sent without an answer. */
  #rounds = 0;
  /** It was sent once at least. */
  #isAsked = false;
  /** Something of it may have reached the server. */
  #sent = false;
  /** The request without whose grant its first ask has no effect, until that ask is answered. */
  #after: KeyRequest | undefined;
  /** The server took the lock away before the grant has arrived. */
  #isRevoked = false;
  #controller: AbortController | undefined;
  #isAborted = false;

  constructor(
    oldest: Waiter,
    private readonly queue: KeyQueue,
    after?: KeyRequest,
  ) {
    this.#after = after;
    const { mode, limited, lease, minHold } = oldest.terms;
    this.#oldest = oldest;
    this.id = queue.core.random.id();
    this.key = queue.key;
    this.mode = mode;
    this.limited = limited;
    this.lease = lease;
    this.minHold = minHold;
    this.otherKeysHeld = queue.otherKeysHeld;
  }

  // For the backend.

  get since(): number {
    return this.#oldest?.since ?? this.queue.core.clock.now();
  }

  get callers(): number {
    const oldest = this.#oldest;
    let count = 1;
    for (let next = oldest?.next; next !== undefined && count < LARGEST_COHORT && this.fits(next); next = next.next)
      count += 1;
    return count;
  }

  get wait(): number {
    const oldest = this.#oldest;
    return oldest === undefined || oldest.isLate ? 0 : Math.max(0, oldest.deadline - this.queue.core.clock.now());
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#isAborted) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  get after(): KeyRequest | undefined {
    return this.#after;
  }

  waits(instead?: LockError): void {
    if (instead === undefined) this.queue.core.reachability.answered();
    const sent = this.#inFlight;
    if (sent === undefined) return;
    if (sent.phase === 'asking') {
      sent.phase = 'queued';
      this.queue.core.suspension.queued(1);
    }
    this.#sent ||= instead === undefined;
    this.#rounds = 1;
    sent.failure = instead;
    // Nothing is reported of a waiter before its turn.
    if (this.#after === undefined) this.queue.onChange(this, { to: 'queued', instead });
  }

  lost(cause?: unknown): void {
    if (this.#stage.phase === 'granted') this.#stage.lose('revoked', cause);
    else this.#isRevoked = true;
  }

  // For its queue.

  get isAsking(): boolean {
    return this.#stage.phase === 'asking';
  }

  get isPausing(): boolean {
    return this.#stage.phase === 'pausing';
  }

  /** Its ask has failed, and is sent again. */
  get isRepeating(): boolean {
    return this.#stage.phase === 'pausing' && this.#stage.failure !== undefined;
  }

  /** When it was last sent, on the monotonic clock, if that ask is not over. */
  get askedAt(): number {
    return this.#inFlight?.askedAt ?? -Infinity;
  }

  /** How often it was sent without an answer. */
  get rounds(): number {
    return this.#rounds;
  }

  /** Why its last ask was not answered, or what it waits for instead of the lock. */
  get failure(): unknown {
    const stage = this.#stage;
    return stage.phase === 'granted' || stage.phase === 'over' ? undefined : stage.failure;
  }

  /** For how many ms the backend has not answered a question about it: `Infinity` while a grant of it is being confirmed. */
  unansweredFor(now: number): number {
    const { backend } = this.queue.core;
    switch (this.#stage.phase) {
      case 'queued':
        return answerOr(Infinity, () => backend.unansweredFor?.(this) ?? 0);
      case 'asking':
        return now - this.#stage.askedAt;
      default:
        return 0;
    }
  }

  /** Whether a grant of it serves this waiter. */
  fits({ terms }: Waiter): boolean {
    const { mode, limited, lease, minHold } = terms;
    return (
      mode === this.mode &&
      lease === this.lease &&
      minHold === this.minHold &&
      limited?.limit === this.limited?.limit &&
      limited?.weight === this.limited?.weight
    );
  }

  /** It asks for this waiter from now on, which it fits. */
  askFor(oldest: Waiter): void {
    this.#oldest = oldest;
  }

  /** The turn of its waiter has begun: this process holds under the request before it. */
  onTurn(): void {
    this.#after = undefined;
    const sent = this.#inFlight;
    if (sent?.phase === 'asking') sent.askedAt = this.queue.core.clock.now();
    else if (sent?.phase === 'queued')
      this.queue.onChange(this, { to: 'queued', instead: sent.failure as LockError | undefined });
  }

  /** Sends it, the first time or again. */
  ask(): void {
    const { clock, suspension, releases } = this.queue.core;
    const askedAt = clock.now();
    const { failure } = this;
    const suspensions = suspension.recent(askedAt);
    this.#become({ phase: 'asking', askedFor: this.#oldest, askedAt, suspensions, failure });
    this.#rounds += 1;
    this.#isAsked = true;
    releases.inFlight.add();
    detached(KeyRequest.#send, this);
  }

  /**
   * Sends it after a pause.
   *
   * @param rounds how often it was asked for in vain
   * @param failure why
   */
  pause(rounds: number, failure?: unknown): void {
    this.#rounds = rounds;
    const { clock, random } = this.queue.core;
    const ask = () => {
      this.ask();
    };
    const timer = clock.setTimer(ask, backOff(random, rounds - 1, RETRY), true);
    this.#become({ phase: 'pausing', timer, failure });
  }

  /** It serves nobody any more. Its grant, or one that may come, is released. */
  giveUp(): void {
    const isSent = this.#sent || this.#stage.phase !== 'pausing';
    this.#become(OVER);
    this.#isAborted = true;
    this.#controller?.abort();
    if (this.#isAsked) void this.queue.core.releases.giveUp(this, isSent);
  }

  /** In no caller's async context. */
  static readonly #send = (request: KeyRequest): void => {
    const { backend, releases } = request.queue.core;
    const onAnswer = (answer: Grant | 'busy' | 'not-asked'): void => {
      request.#onAnswer(answer);
      releases.inFlight.done();
    };
    const onFailure = (error: unknown): void => {
      request.#onFailure(error);
      releases.inFlight.done();
    };
    void promised(() => backend.acquire(request)).then(onAnswer, onFailure);
  };

  #onAnswer(answer: Grant | 'busy' | 'not-asked'): void {
    const { clock, suspension, reachability, releases } = this.queue.core;
    const sent = this.#inFlight;
    if (sent === undefined) {
      // Its id is dead. A grant that comes all the same is released whenever it comes.
      if (typeof answer === 'object') void releases.giveUp(this, true);
      return;
    }
    if (answer === 'not-asked') {
      this.#become(OVER);
      this.queue.onChange(this, { to: 'failed', error: NOT_ASKED, askedFor: sent.askedFor });
      return;
    }
    if (!this.#takesEffect()) return;
    const now = clock.now();
    if (answer === 'busy') {
      reachability.answered();
      this.#become(OVER);
      this.queue.onChange(this, { to: 'busy', askedFor: sent.askedFor });
    } else if (
      !this.#isRevoked &&
      now < answer.validUntil &&
      // An answer is as fresh as the clock says only if the machine was not suspended.
      suspension.observeGrant(now) === sent.suspensions
    ) {
      reachability.answered();
      const grant = new HeldGrant(this, this.queue, answer, sent.suspensions, now);
      this.#become(grant);
      this.queue.onChange(this, { to: 'granted', grant });
    } else {
      this.giveUp();
      this.queue.onChange(this, { to: 'outrun' });
    }
  }

  #onFailure(error: unknown): void {
    const sent = this.#inFlight;
    if (sent === undefined) return;
    this.#sent ||= wasSent(error);
    const isEarly = this.#after !== undefined;
    // Nothing of it is in flight any more, so what is left to release depends on what was sent.
    this.#become(NEW);
    if (!isEarly && isRetryable(error)) {
      this.queue.core.reachability.failed(error);
      this.pause(this.#rounds, error);
      this.queue.onChange(this, { to: 'repeated' });
      return;
    }
    // The answer was for the waiter that it asked for. The others may get another one. Usually the request before an early one was in the same call and has
    // failed as well. That one is repeated, and this one must not hold meanwhile.
    this.giveUp();
    this.queue.onChange(this, { to: 'failed', error: isEarly ? NOT_ASKED : error, askedFor: sent.askedFor });
  }

  /**
   * Whether an answer counts: whether this process holds under the request before it, if there is one. Otherwise the request is given up with whatever it
   * was granted, because a caller never holds a key while it waits for one before it, and its key is requested again in its turn.
   */
  #takesEffect(): boolean {
    const after = this.#after;
    this.#after = undefined;
    const sent = this.#inFlight;
    if (after === undefined || after.#isHeld || sent === undefined) return true;
    this.giveUp();
    this.queue.onChange(this, { to: 'failed', error: NOT_ASKED, askedFor: sent.askedFor });
    return false;
  }

  get #inFlight(): Sent | undefined {
    const stage = this.#stage;
    return stage.phase === 'asking' || stage.phase === 'queued' ? stage : undefined;
  }

  get #isHeld(): boolean {
    return this.#stage.phase === 'granted' && this.#stage.isHeld;
  }

  #become(next: Pausing | Sent | HeldGrant | Over): void {
    const { clock, suspension } = this.queue.core;
    const stage = this.#stage;
    if (stage.phase === 'pausing' && stage.timer !== undefined) clock.clearTimer(stage.timer);
    if (stage.phase === 'queued') suspension.queued(-1);
    this.#stage = next;
    if (next.phase !== 'granted' && next.phase !== 'over') return;
    // Renewals and the release would keep alive what these reach.
    this.#oldest = undefined;
    this.#after = undefined;
  }
}
