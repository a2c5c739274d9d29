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
import { NEW, OVER, type Over, type Pausing, type InFlight } from './request-stage.js';
import type { Waiter } from './waiter.js';

/** How many callers one grant may serve in turn. */
const MAX_COHORT = 64;
const RETRY = { first: 50, most: 1_000 };

/**
 * A request for a lock under one id, on behalf of a queue's oldest waiter. If that waiter leaves, the next one takes
 * over, provided its terms are the same. A granted request becomes a {@link HeldGrant}. The request reports
 * every change to its queue.
 *
 * Getters read the clock but don't change anything.
 */
export class KeyRequest implements AcquireRequest {
  readonly id: string;
  readonly key: string;
  readonly mode: LockMode;
  readonly limited: LimitShare | undefined;
  readonly lease: number;
  readonly minHold: number;
  readonly otherKeysHeld: number;
  /** The backend's state for this request. */
  state: unknown;
  seen: unknown;
  #stage: Pausing | InFlight | HeldGrant | Over = NEW;
  /** The waiter on whose behalf the request is made. */
  #oldest: Waiter | undefined;
  #rounds = 0;
  /**
   * How many machine suspensions were known when the request was first sent. A repeated attempt may return what an
   * earlier one was granted.
   */
  #suspensions: number | undefined;
  /** Whether the request was passed to the backend. */
  #wasPassed = false;
  /** Whether a command of this request may have reached the server, so a release must follow. */
  #mayHaveArrived = false;
  /**
   * Whether a failed attempt was sent: one of this request, or of the one that it replaces because its grant came too
   * late.
   */
  #wasSent = false;
  /**
   * The request for the previous key: this request takes effect only if that one is granted. Undefined once a response
   * has arrived.
   */
  #after: KeyRequest | undefined;
  /** Whether the server took the lock away before the grant arrived. */
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
    for (let next = oldest?.next; next !== undefined && count < MAX_COHORT && this.fits(next); next = next.next)
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
    if (sent.phase === 'sent') {
      sent.phase = 'queued';
      this.queue.core.suspension.queued(1);
    }
    this.#mayHaveArrived ||= instead === undefined;
    this.#rounds = 1;
    sent.failure = instead;
    // Don't report an early waiter before its turn.
    if (this.#after === undefined) this.queue.onChange(this, { to: 'queued', instead });
  }

  lost(cause?: unknown): void {
    if (this.#stage.phase === 'granted') this.#stage.lose('revoked', cause);
    else this.#isRevoked = true;
  }

  // For its queue.

  get isUnanswered(): boolean {
    return this.#stage.phase === 'sent';
  }

  get isPausing(): boolean {
    return this.#stage.phase === 'pausing';
  }

  /** Whether the last attempt failed and the request is pausing before the next one. */
  get isRepeating(): boolean {
    return this.#stage.phase === 'pausing' && this.#stage.failure !== undefined;
  }

  /** Whether any command for this request may have reached the backend. */
  get mayHaveArrived(): boolean {
    return this.#mayHaveArrived || this.#stage.phase !== 'pausing';
  }

  /** Whether a command may have reached the server, from this request or from the one that it replaces. */
  get wasSent(): boolean {
    return this.#wasSent || this.mayHaveArrived;
  }

  /** When the current attempt was sent; `-Infinity` if no attempt is in flight. */
  get sentAt(): number {
    return this.#inFlight?.sentAt ?? -Infinity;
  }

  /** How many attempts in a row went unanswered. */
  get rounds(): number {
    return this.#rounds;
  }

  /** Why the last attempt failed, or what the request is waiting for instead of the lock. */
  get failure(): unknown {
    const stage = this.#stage;
    return stage.phase === 'granted' || stage.phase === 'over' ? undefined : stage.failure;
  }

  /** How long the server has owed a response to this request, in ms; `Infinity` while a grant is being confirmed. */
  unansweredFor(now: number): number {
    const { backend } = this.queue.core;
    switch (this.#stage.phase) {
      case 'queued':
        return answerOr(Infinity, () => backend.unansweredFor?.(this) ?? 0);
      case 'sent':
        return now - this.#stage.sentAt;
      default:
        return 0;
    }
  }

  /** Whether a grant for this request would suit the waiter. */
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

  /** Continues the request on behalf of another waiter with the same terms. */
  adopt(oldest: Waiter): void {
    this.#oldest = oldest;
  }

  /** Starts the waiter's turn, now that this process holds the previous key. */
  onTurn(): void {
    this.#after = undefined;
    const sent = this.#inFlight;
    if (sent?.phase === 'sent') sent.sentAt = this.queue.core.clock.now();
    else if (sent?.phase === 'queued')
      this.queue.onChange(this, { to: 'queued', instead: sent.failure as LockError | undefined });
  }

  /** Sends the request, for the first time or again. */
  send(): void {
    const { clock, suspension, releases } = this.queue.core;
    const sentAt = clock.now();
    const { failure } = this;
    this.#suspensions ??= suspension.recent(sentAt);
    this.#become({ phase: 'sent', sentFor: this.#oldest, sentAt, failure });
    this.#rounds += 1;
    this.#wasPassed = true;
    releases.inFlight.add();
    detached(KeyRequest.#acquire, this);
  }

  /**
   * Sends the request after a pause.
   *
   * @param rounds how many attempts failed
   * @param failure why the last one failed, which may be the one of an earlier request
   */
  pause(rounds: number, failure?: unknown): void {
    this.#rounds = rounds;
    this.#wasSent ||= failure !== undefined && wasSent(failure);
    const { clock, random } = this.queue.core;
    const send = () => {
      this.send();
    };
    const timer = clock.setTimer(send, backOff(random, rounds - 1, RETRY), true);
    this.#become({ phase: 'pausing', timer, failure });
  }

  /** Ends the request because no waiter needs it. Releases any grant that it has or may still receive. */
  releaseUnused(): void {
    const { mayHaveArrived } = this;
    this.#become(OVER);
    this.#isAborted = true;
    this.#controller?.abort();
    if (this.#wasPassed) void this.queue.core.releases.releaseUnused(this, mayHaveArrived);
  }

  /** Runs detached. */
  static readonly #acquire = (request: KeyRequest): void => {
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
      // The id is invalid, so release a grant that arrives this late.
      if (typeof answer === 'object') void releases.releaseUnused(this, true);
      return;
    }
    if (answer === 'not-asked') {
      this.#become(OVER);
      this.queue.onChange(this, { to: 'failed', error: NOT_ASKED, sentFor: sent.sentFor });
      return;
    }
    if (!this.#takesEffect()) return;
    const now = clock.now();
    if (answer === 'busy') {
      reachability.answered();
      this.#become(OVER);
      this.queue.onChange(this, { to: 'busy', sentFor: sent.sentFor });
    } else if (
      !this.#isRevoked &&
      now < answer.validUntil &&
      // The monotonic clock stops while the machine is suspended, so a grant that spans a suspension may be older than
      // it seems.
      suspension.observeGrant(now) === this.#suspensions
    ) {
      reachability.answered();
      const grant = new HeldGrant(this, this.queue, answer, this.#suspensions, now);
      this.#become(grant);
      this.queue.onChange(this, { to: 'granted', grant });
    } else {
      this.releaseUnused();
      this.queue.onChange(this, { to: 'expired' });
    }
  }

  #onFailure(error: unknown): void {
    const sent = this.#inFlight;
    if (sent === undefined) return;
    this.#mayHaveArrived ||= wasSent(error);
    const isEarly = this.#after !== undefined;
    // No command is in flight now, so `releaseUnused` depends only on whether one may have arrived.
    this.#become(NEW);
    if (!isEarly && isRetryable(error)) {
      this.pause(this.#rounds, error);
      // Reported once the next attempt is scheduled: a listener may cancel the last waiter, which ends this request.
      this.queue.core.reachability.failed(error);
      this.queue.onChange(this, { to: 'repeated' });
      return;
    }
    // Only the waiter that the request was sent for gets the error; others may get a different outcome. An
    // early request usually shares a command with the previous request, which has also failed and will be retried.
    // Until the previous one is granted, this one must not hold its key.
    this.releaseUnused();
    this.queue.onChange(this, { to: 'failed', error: isEarly ? NOT_ASKED : error, sentFor: sent.sentFor });
  }

  /**
   * Whether a response counts: if there is a previous key, this process must hold it. Otherwise, the request and its
   * grant are released, because a caller must not hold a key while it waits for an earlier one. The key is requested
   * again when its turn comes.
   */
  #takesEffect(): boolean {
    const after = this.#after;
    this.#after = undefined;
    const sent = this.#inFlight;
    if (after === undefined || after.#isHeld || sent === undefined) return true;
    this.releaseUnused();
    this.queue.onChange(this, { to: 'failed', error: NOT_ASKED, sentFor: sent.sentFor });
    return false;
  }

  get #inFlight(): InFlight | undefined {
    const stage = this.#stage;
    return stage.phase === 'sent' || stage.phase === 'queued' ? stage : undefined;
  }

  get #isHeld(): boolean {
    return this.#stage.phase === 'granted' && this.#stage.isHeld;
  }

  #become(next: Pausing | InFlight | HeldGrant | Over): void {
    const { clock, suspension } = this.queue.core;
    const stage = this.#stage;
    if (stage.phase === 'pausing' && stage.timer !== undefined) clock.clearTimer(stage.timer);
    if (stage.phase === 'queued') suspension.queued(-1);
    this.#stage = next;
    if (next.phase !== 'granted' && next.phase !== 'over') return;
    // Renewals and the release retain this request, but must not retain the waiter or the previous request.
    this.#oldest = undefined;
    this.#after = undefined;
  }
}
