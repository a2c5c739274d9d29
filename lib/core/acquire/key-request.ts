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
 * A request for a lock under one id, on behalf of the oldest waiter of a queue. It outlives that waiter if it fits the next one. A granted request becomes a
 * {@link HeldGrant}. It reports every change to its queue.
 *
 * Getters read the clock and change nothing.
 */
export class KeyRequest implements AcquireRequest {
  readonly id: string;
  readonly key: string;
  readonly mode: LockMode;
  readonly limited: LimitShare | undefined;
  readonly lease: number;
  readonly minHold: number;
  readonly otherKeysHeld: number;
  /** The backend's state of this request. */
  state: unknown;
  seen: unknown;
  #stage: Pausing | Sent | HeldGrant | Over = NEW;
  /** The waiter on whose behalf the request is made. */
  #oldest: Waiter | undefined;
  #rounds = 0;
  #isAsked = false;
  /** Whether a command may have reached the server. */
  #sent = false;
  /** The request for the previous key, without whose grant this one has no effect. Undefined once this request was answered. */
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
    // A waiter is not reported before its turn.
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

  /** Whether the last attempt failed and the request pauses before the next one. */
  get isRepeating(): boolean {
    return this.#stage.phase === 'pausing' && this.#stage.failure !== undefined;
  }

  /** When the attempt in flight was sent, on the monotonic clock; `-Infinity` if none is. */
  get askedAt(): number {
    return this.#inFlight?.askedAt ?? -Infinity;
  }

  /** How many attempts were not answered. */
  get rounds(): number {
    return this.#rounds;
  }

  /** Why the last attempt was not answered, or what the request waits for instead of the lock. */
  get failure(): unknown {
    const stage = this.#stage;
    return stage.phase === 'granted' || stage.phase === 'over' ? undefined : stage.failure;
  }

  /** How many ms the server owes an answer about this request; `Infinity` while a grant is being confirmed. */
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

  /** Whether a grant of this request would serve the waiter. */
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

  /** Makes the request on behalf of another waiter, which it must fit. */
  askFor(oldest: Waiter): void {
    this.#oldest = oldest;
  }

  /** Starts the turn of the waiter: this process holds the previous key. */
  onTurn(): void {
    this.#after = undefined;
    const sent = this.#inFlight;
    if (sent?.phase === 'asking') sent.askedAt = this.queue.core.clock.now();
    else if (sent?.phase === 'queued')
      this.queue.onChange(this, { to: 'queued', instead: sent.failure as LockError | undefined });
  }

  /** Sends the request, for the first time or again. */
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
   * Sends the request after a pause.
   *
   * @param rounds how many attempts failed
   * @param failure why the last one failed
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

  /** Gives the request up, because it serves no waiter. A grant that it has or may still get is released. */
  releaseUnused(): void {
    const isSent = this.#sent || this.#stage.phase !== 'pausing';
    this.#become(OVER);
    this.#isAborted = true;
    this.#controller?.abort();
    if (this.#isAsked) void this.queue.core.releases.releaseUnused(this, isSent);
  }

  /** Sends a request. Runs detached. */
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
      // The id is dead, so a grant that arrives this late is released.
      if (typeof answer === 'object') void releases.releaseUnused(this, true);
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
      // The monotonic clock stops while the machine is suspended, so a grant that spans a suspension may be older than it seems.
      suspension.observeGrant(now) === sent.suspensions
    ) {
      reachability.answered();
      const grant = new HeldGrant(this, this.queue, answer, sent.suspensions, now);
      this.#become(grant);
      this.queue.onChange(this, { to: 'granted', grant });
    } else {
      this.releaseUnused();
      this.queue.onChange(this, { to: 'outrun' });
    }
  }

  #onFailure(error: unknown): void {
    const sent = this.#inFlight;
    if (sent === undefined) return;
    this.#sent ||= wasSent(error);
    const isEarly = this.#after !== undefined;
    // No command is in flight any more, so what must be released depends only on what was sent.
    this.#become(NEW);
    if (!isEarly && isRetryable(error)) {
      this.queue.core.reachability.failed(error);
      this.pause(this.#rounds, error);
      this.queue.onChange(this, { to: 'repeated' });
      return;
    }
    // The answer applies to the waiter for which the request was sent; others may get a different one. An early request usually shares a command with the
    // request before it, which has then failed as well and is repeated. Until then, this one must not hold its key.
    this.releaseUnused();
    this.queue.onChange(this, { to: 'failed', error: isEarly ? NOT_ASKED : error, askedFor: sent.askedFor });
  }

  /**
   * Whether an answer counts: if there is a previous key, this process must hold it. Otherwise the request and its grant are given up, because a caller
   * must not hold a key while it waits for an earlier one. The key is requested again in its turn.
   */
  #takesEffect(): boolean {
    const after = this.#after;
    this.#after = undefined;
    const sent = this.#inFlight;
    if (after === undefined || after.#isHeld || sent === undefined) return true;
    this.releaseUnused();
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
    // Renewals and the release keep this request alive, and must not keep the waiter and the previous request alive with it.
    this.#oldest = undefined;
    this.#after = undefined;
  }
}
