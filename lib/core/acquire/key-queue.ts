import { LockUnavailableError, type LossReason } from '../../api/errors.js';
import type { LockMode } from '../../api/lock-mode.js';
import type { HeldGrant } from '../hold/held-grant.js';
import type { Holder } from '../hold/holder.js';
import { identity, type OnReleased } from '../hold/releases.js';
import type { ProviderCore } from '../provider-core.js';
import { SmallSet } from '../toolkit/small-set.js';
import { answerDueAt, refusalAfter } from './answer-deadline.js';
import { KeyRequest } from './key-request.js';
import type { Refusal } from './lock-observer.js';
import type { RequestChange } from './request-stage.js';
import { PollingTurn } from './polling-turn.js';
import type { Terms } from '../plan/lock-settings.js';
import { excludes } from './re-entry.js';
import type { Waiter } from './waiter.js';
import { WaiterList } from './waiter-list.js';

// This limit only bounds memory. A short wait is better protection against overload.
const MAX_WAITERS = 10_000;

const BUSY: Refusal = { why: 'busy' };

/**
 * The callers in this process that are waiting for one key and hold the same number of other keys. Decides who enters,
 * and when to send a request.
 *
 * At most one request is open at a time, sent on behalf of the oldest caller (the head). The backend grants the lock to
 * the process, and the head enters, together with any readers directly behind it. When a holder releases, the head may
 * enter under the same grant, as a cohort (lock cohorting: Dice, Marathe, and Shavit, PPoPP 2012). Otherwise, the next
 * request is sent along with the release: before it if the backend has a queue, so that the release sees all waiting
 * processes, and after it if the backend is polled.
 *
 * A request is repeated while its outcome is unknown. Once a release has been sent for an id, the id is retired, and a
 * grant that arrives later is released. A grant that expired before it arrived is also released, and the head sends
 * a request with a new id.
 */
export class KeyQueue {
  readonly #waiters = new WaiterList();
  #request: KeyRequest | undefined;
  readonly #held = new SmallSet<HeldGrant>();
  #enteredAt = -Infinity;
  #turn: PollingTurn | undefined;

  constructor(
    readonly key: string,
    readonly otherKeysHeld: number,
    readonly core: ProviderCore,
    /** Called when the queue becomes empty. */
    private readonly onEmpty: (queue: KeyQueue) => void,
  ) {}

  get size(): number {
    return this.#waiters.size;
  }

  /** Whether the queue has no waiters, grants, or requests. */
  get isEmpty(): boolean {
    return this.#waiters.size === 0 && this.#held.size === 0 && this.#request === undefined;
  }

  get request(): KeyRequest | undefined {
    return this.#request;
  }

  /** The unanswered request sent on this caller's behalf. */
  requestInFlightFor(waiter: Waiter): KeyRequest | undefined {
    return this.#request?.isUnanswered && this.#waiters.head === waiter ? this.#request : undefined;
  }

  get isFull(): boolean {
    return this.#waiters.size >= MAX_WAITERS;
  }

  get enteredAt(): number {
    return this.#enteredAt;
  }

  get arrivals(): number {
    return this.#waiters.arrivals;
  }

  /** The grants under which this process holds the key. */
  get held(): readonly HeldGrant[] {
    return this.#held.values();
  }

  /** The waiters, oldest first. */
  get waiters(): readonly Waiter[] {
    return this.#waiters.all();
  }

  /** When the oldest caller arrived. */
  get since(): number {
    return this.#waiters.head?.since ?? Infinity;
  }

  // Joining and leaving.

  /** Adds a waiter. Call {@link expireHeld} first. */
  add(waiter: Waiter): void {
    if (waiter.isLate && this.#isAnswered(waiter)) {
      waiter.refuse(this.#refusalOf(waiter));
      return;
    }
    const isFirst = this.#waiters.head === undefined;
    this.#waiters.add(waiter);
    this.#requestForHead();
    if (waiter.isQueued && (!isFirst || this.#request === undefined)) waiter.waits();
    // A `waiting` listener may have dismissed the waiter.
    if (waiter.isQueued) waiter.wakeAt(waiter.isLate ? this.#answerDueAt(waiter) : waiter.deadline);
  }

  /**
   * Adds a waiter before its turn to an empty queue. Its request takes effect only if `after` is granted. Until
   * {@link onTurn}, the waiter has no timer and is not reported.
   */
  addBehind(after: KeyRequest, waiter: Waiter): void {
    this.#waiters.add(waiter);
    this.#request = new KeyRequest(waiter, this, after);
    this.#request.send();
  }

  /** Starts the turn of a waiter that joined early: from now on, its deadline applies. */
  onTurn(waiter: Waiter): void {
    if (!waiter.isQueued) return;
    this.#request?.onTurn();
    this.onTime(waiter);
  }

  leave(waiter: Waiter, refusal: Refusal): void {
    if (!waiter.isQueued) return;
    this.#refuse(waiter, refusal);
    this.#advance();
  }

  /** Handles a waiter's timer: its deadline has passed, or the response is overdue. */
  onTime(waiter: Waiter): void {
    this.expireHeld();
    if (!waiter.isQueued) return;
    const now = this.core.clock.now();
    const request = this.#request;
    if (now < waiter.deadline) waiter.wakeAt(waiter.deadline);
    else if (now < this.#answerDueAt(waiter)) {
      this.#waiters.setLate(waiter, true);
      waiter.wakeAt(this.#answerDueAt(waiter));
    } else {
      if (request?.isUnanswered) this.core.reachability.failed(request.failure);
      this.leave(waiter, this.#refusalOf(waiter));
    }
  }

  #refuse(waiter: Waiter, refusal: Refusal): void {
    this.#waiters.remove(waiter);
    waiter.refuse(refusal);
  }

  // The backend answers.

  /** Whether the request is waiting to be resent. */
  get isPausing(): boolean {
    return this.#request?.isPausing === true;
  }

  /** Sends a paused request now, because the backend is responding again. */
  retryNow(): void {
    if (this.isPausing) this.#request?.send();
  }

  onChange(request: KeyRequest, change: RequestChange): void {
    // A listener may have ended the request in the meantime.
    if (request !== this.#request) return;
    switch (change.to) {
      case 'queued':
        this.#turn = undefined;
        this.#waiters.head?.waits(change.instead);
        this.#refuseLate();
        return;
      case 'repeated':
        this.#refuseLate();
        return;
      case 'granted':
        this.#request = undefined;
        this.#letInUnder(change.grant);
        break;
      case 'expired':
        this.#request = undefined;
        if (this.#waiters.head !== undefined)
          this.#newRequest(this.#waiters.head).pause(request.rounds, grantedTooLate());
        this.#refuseLate();
        break;
      case 'busy':
        this.#request = undefined;
        this.#refuseBusy(request, change.sentFor);
        break;
      case 'failed': {
        this.#request = undefined;
        const { error, sentFor } = change;
        if (sentFor?.isQueued) this.#refuse(sentFor, { why: 'failed', error });
        break;
      }
    }
    this.#advance();
  }

  /** Lets the head in, and any readers directly behind it, unless a listener has meanwhile ended the grant. */
  #letInUnder(grant: HeldGrant): void {
    const now = grant.grantedAt;
    this.#held.add(grant);
    this.core.watchdog.add(grant, now);
    let next = this.#waiters.head;
    while (next !== undefined) {
      this.#letIn(next, grant, now);
      next = this.#waiters.head;
      if (!grant.isHeld || grant.request.mode !== 'shared' || next === undefined || !grant.request.fits(next)) return;
    }
  }

  #letIn(waiter: Waiter, grant: HeldGrant, now: number): void {
    this.#waiters.remove(waiter);
    waiter.enter(grant, now);
    this.#enteredAt = now;
  }

  #refuseBusy(request: KeyRequest, sentFor: Waiter | undefined): void {
    const refusal: Refusal = { why: 'busy', request };
    for (const waiter of this.#waiters.all()) {
      // Late waiters that request at least as much are busy, too.
      const isBusy = waiter === sentFor || (waiter.isLate && requestsAtLeast(waiter.terms, request));
      if (isBusy && waiter.isQueued) this.#refuse(waiter, refusal);
    }
  }

  // Grants end.

  /**
   * Ends a hold. Resolves to the return value of `answer`, which is called in the tick in which the outcome arrives.
   */
  release<R>(holder: Holder, failed: boolean, now: number, answer: OnReleased<R>): Promise<R> {
    const { grant } = holder;
    if (grant.remove(holder) > 0) return Promise.resolve(answer('released'));
    const next = this.#waiters.head;
    if (next === undefined || !grant.request.fits(next) || !grant.mayServe(next.arrival, now))
      return this.#sendRelease(grant, failed, now, answer);
    grant.handOff();
    this.#letIn(next, grant, now);
    this.#advance();
    return Promise.resolve(answer('released'));
  }

  /** Ends grants as lost. */
  lose(grants: readonly HeldGrant[], reason: LossReason, cause?: unknown): void {
    const lost = grants.flatMap(({ holders }) => holders);
    // Before any listener runs, mark all holders as lost and send the releases: a listener may release another reader
    // or request the key again.
    for (const grant of grants) grant.end();
    for (const holder of lost) holder.lose(reason, cause);
    const now = this.core.clock.now();
    for (const grant of grants) void this.#sendRelease(grant, true, now, identity);
    for (const holder of lost) holder.onLost();
  }

  /**
   * Ends expired grants, all together because there may be thousands. This runs the user's listeners, which may change
   * anything.
   */
  expireHeld(): void {
    if (this.#held.size === 0) return;
    const now = this.core.clock.now();
    const expired = this.#held.values().filter((grant) => grant.hasExpired(now));
    if (expired.length > 0) this.lose(expired, 'expired');
  }

  #sendRelease<R>(grant: HeldGrant, failed: boolean, now: number, answer: OnReleased<R>): Promise<R> {
    const { capabilities, clock, releases, watchdog } = this.core;
    const { request } = grant;
    const keepUntil = grant.keepUntil(now);
    grant.end();
    this.#held.delete(grant);
    // Remove the grant before sending the release, so no renewal follows it.
    watchdog.remove(grant);
    if (capabilities.fair) this.#requestForHead();
    const lasting = Math.max(grant.lease.longest, keepUntil - now);
    const released = releases.send(request, { keepUntil, failed }, lasting, answer, now);
    if (!capabilities.fair) this.#advanceAfterRelease(clock.now());
    return released;
  }

  // The next step.

  /** Ends expired grants (the watchdog does so if no caller is waiting) and requests the key for the oldest waiter. */
  #advance(): void {
    if (this.#waiters.size > 0) this.expireHeld();
    this.#requestForHead();
  }

  /**
   * Requests the key for the oldest waiter, unless this process holds it exclusively. First refuses late waiters that
   * it can't serve.
   */
  #requestForHead(): void {
    this.#refuseBlockedHeads();
    const head = this.#waiters.head;
    const request = this.#request;
    if (request !== undefined) {
      if (head !== undefined && request.fits(head)) {
        request.adopt(head);
        return;
      }
      this.#request = undefined;
      request.releaseUnused();
    }
    if (head === undefined) {
      if (this.#held.size === 0) this.onEmpty(this);
    } else if (this.#holdsInMode((mode) => mode === 'exclusive')) this.#refuseLate();
    else this.#newRequest(head).send();
  }

  /** Not recursive, because thousands may have been waiting for one response. */
  #refuseBlockedHeads(): void {
    let { head } = this.#waiters;
    while (head?.isLate && this.#isBlockedHere(head)) {
      this.#refuse(head, BUSY);
      head = this.#waiters.head;
    }
  }

  #newRequest(head: Waiter): KeyRequest {
    return (this.#request = new KeyRequest(head, this));
  }

  /**
   * Requests the key for the oldest waiter right after the release, or after a pause if other processes should get a
   * turn.
   */
  #advanceAfterRelease(now: number): void {
    const head = this.#waiters.head;
    if (head === undefined) this.#turn = undefined;
    else {
      this.#turn ??= new PollingTurn(now);
      if (this.#turn.isOver(now) && this.#request === undefined) {
        this.#turn = undefined;
        this.#newRequest(head).pause(1);
      }
    }
    this.#advance();
  }

  /** Whether this process holds the key in a mode that excludes the waiter. */
  #isBlockedHere({ terms }: Waiter): boolean {
    return this.#holdsInMode((mode) => excludes(mode, terms.mode));
  }

  #holdsInMode(matches: (mode: LockMode) => boolean): boolean {
    if (this.#held.size === 0) return false;
    const now = this.core.clock.now();
    return this.#held.values().some((grant) => matches(grant.request.mode) && grant.isValid(now));
  }

  // Ending a wait.

  /** Whether a late waiter's outcome is known without sending a request. */
  #isAnswered(waiter: Waiter): boolean {
    if (this.#isBlockedHere(waiter)) return true;
    return this.#request !== undefined && this.core.clock.now() >= this.#answerDueAt(waiter);
  }

  /**
   * Refuses the late waiters, which were waiting only for this response. After a failure, they stay as long as the
   * backend may still reconnect in time.
   */
  #refuseLate(): void {
    if (this.#waiters.late === 0) return;
    const now = this.core.clock.now();
    for (const waiter of this.#waiters.all()) {
      if (!waiter.isLate || !waiter.isQueued) continue;
      if (this.#request?.isRepeating && now < this.#answerDueAt(waiter)) continue;
      this.#refuse(waiter, this.#refusalOf(waiter));
    }
    this.#advance();
  }

  #refusalOf(waiter: Waiter): Refusal {
    const request = this.#request;
    if (request === undefined || this.#isBlockedHere(waiter)) return BUSY;
    return refusalAfter(request, this.core.clock.now());
  }

  #answerDueAt(waiter: Waiter): number {
    return answerDueAt(waiter, this.#request, this.core);
  }
}

/** Others may not hold the lock at all, so it isn't busy. */
function grantedTooLate(): LockUnavailableError {
  return new LockUnavailableError(
    'the grant had already ended when it arrived. Retry; if this happens often, raise "lease".',
  );
}

/** Whether one set of terms is at least as demanding as another: if the other is busy, so is this one. */
function requestsAtLeast({ mode, limited }: Terms, others: Pick<Terms, 'mode' | 'limited'>): boolean {
  if (limited && others.limited)
    return limited.weight >= others.limited.weight && limited.limit <= others.limited.limit;
  return mode === 'exclusive' || mode === others.mode;
}
