import type { Timer } from '../../api/clock.js';
import type { LockError } from '../../api/errors.js';
import type { Grant, ReleaseOutcome } from '../../api/lock-provider.js';
import { type GrantOwner, HeldGrant } from '../hold/held-grant.js';
import type { ReleaseIntent } from '../hold/releases.js';
import type { ProviderCore } from '../provider-core.js';
import { detached } from '../toolkit/detached.js';
import { promised } from '../toolkit/promised.js';
import { isRetryable, wasSent } from '../toolkit/retryable.js';
import { backOff } from '../toolkit/timing.js';
import type { Caller, CallerQueue } from './caller.js';
import { CallerList } from './caller-list.js';
import { KeyRequest, type RequestQueue } from './key-request.js';
import { excludes } from './re-entry.js';

// How long a caller whose wait is over waits for the answer to an ask in flight: with `wait: 0` a backend that needs 20 ms to answer is not
// down, and one that gives up at the deadline itself knows why (its pool is exhausted). A backend that connects again by itself has this time for
// that as well.
const ANSWER_TIMEOUT = 1_000;
const RETRY = { first: 50, most: 1_000 };
// How long after its grant a cohort lets callers in, in ms. With longer tasks the round trip does not matter, so processes alternate.
const COHORT_TIME = 10;
// How long a server may keep a request in its queue that does not ask any more, in ms.
const QUEUED_FOR = 10_000;
// Where the backend is polled, others ask at random moments. A process that asks with each release would keep them out for as long as callers
// come to it. So after this time, in ms, it pauses as after a request that was not answered.
const TURN = 50;
const UNUSED: ReleaseIntent = { keepUntil: 0, failed: true };

/**
 * The callers of one key in this process, which hold equally many other keys, and what the process asks the backend for them.
 *
 * It makes at most one request, on behalf of its oldest caller, the head. What the backend grants, it grants to the process: the head
 * enters, with the readers directly behind it. When a holder releases, the head may enter under the same grant, as a cohort (lock
 * cohorting, after Dice, Marathe and Shavit, PPoPP 2012). Otherwise the next request is sent together with the release: before it where
 * the backend has a queue, so that the release sees all who wait, and after it where the backend is polled.
 *
 * A request is repeated while its outcome is unknown. Its id is dead as soon as a release was sent for it; a grant that comes later is
 * released. So is a grant that was over before it was received, and the head is asked for under a new id.
 */
export class KeyQueue implements CallerQueue, RequestQueue, GrantOwner {
  readonly #callers = new CallerList();
  #request: KeyRequest | undefined;
  /** Ends the pause of the request. */
  #retry: Timer | undefined;
  /** Where the backend is polled: since when this process asks again with each release, on the monotonic clock. */
  #turnSince: number | undefined;
  /** What this process holds. */
  readonly #grants = new Map<HeldGrant, KeyRequest>();

  constructor(
    readonly key: string,
    readonly otherKeysHeld: number,
    private readonly provider: ProviderCore,
    /** Called when nobody is left, and nothing is held or asked for. */
    private readonly onEmpty: (queue: KeyQueue) => void,
  ) {}

  /** How many callers wait. */
  get size(): number {
    return this.#callers.size;
  }

  /** The callers, the oldest first. */
  get callers(): readonly Caller[] {
    return this.#callers.all();
  }

  /** A caller comes. */
  add(caller: Caller): void {
    if (caller.isLate && this.#refuses(caller)) return;
    const isFirst = this.#callers.head === undefined;
    this.#callers.insert(caller, this.#request?.oldest);
    this.#advance();
    if (!caller.isQueued) return;
    if (!isFirst || this.#request === undefined) caller.waits();
    caller.wakeAt(caller.isLate ? this.#answerDueAt(caller) : caller.deadline);
  }

  leave(caller: Caller, error: unknown): void {
    if (!caller.isQueued) return;
    this.#callers.remove(caller);
    caller.refuse(error);
    this.#advance();
  }

  /** Takes a caller out without a word. Resolves to what the backend answers to the release of its request, and to `lost` without one. */
  withdraw(caller: Caller): Promise<ReleaseOutcome> {
    this.#callers.remove(caller);
    const request = this.#request;
    const released =
      request?.isAlone && request.fits(caller) ? this.#giveUp(request) : Promise.resolve('lost' as const);
    this.#advance();
    return released;
  }

  /** The deadline of the caller has passed, or the answer is overdue that it waits for. */
  onTime(caller: Caller): void {
    if (!caller.isQueued) return;
    const now = this.provider.clock.now();
    const request = this.#request;
    if (now < caller.deadline) caller.wakeAt(caller.deadline);
    else if (now < this.#answerDueAt(caller)) {
      this.#callers.setLate(caller);
      caller.wakeAt(this.#answerDueAt(caller));
    } else {
      if (request?.phase === 'asking') this.provider.failed(request.failure);
      this.#callers.remove(caller);
      this.#refuse(caller);
      this.#advance();
    }
  }

  /** A caller that repeats its own request asks again. Answers false if there is none to repeat. */
  again(caller: Caller): boolean {
    const request = this.#request;
    if (request?.phase !== 'pausing' || !request.fits(caller)) return false;
    this.#ask(request);
    return true;
  }

  /** Its request pauses before it is sent again. */
  get isPausing(): boolean {
    return this.#request?.phase === 'pausing' && !this.#request.isAlone;
  }

  /** The backend answers again: a request that pauses is sent now. */
  hurry(): void {
    if (this.#request && this.isPausing) this.#ask(this.#request);
  }

  /** For how many ms the backend has not answered a question about the request: `Infinity` while a grant of it is being confirmed. */
  get unansweredFor(): number {
    const request = this.#request;
    if (request?.phase === 'queued') return this.provider.backend.unansweredFor?.(request) ?? 0;
    // Its last ask has failed, and nothing is known since.
    if (this.#isRepeating) return ANSWER_TIMEOUT;
    return request?.phase === 'asking' ? this.provider.clock.now() - request.askedAt : 0;
  }

  /** When the oldest caller came, on the monotonic clock. */
  get since(): number {
    return this.#callers.head?.terms.since ?? Infinity;
  }

  /** What this process holds is not handed on any more. */
  endCohorts(): void {
    for (const grant of this.#grants.keys()) grant.followers = 0;
  }

  /** Asks the backend whether this process still holds what it held. */
  check(): void {
    for (const [grant, { isAlone }] of this.#grants) if (!isAlone) this.provider.holds.check(grant);
  }

  onQueued(request: KeyRequest, instead: LockError | undefined): void {
    if (instead === undefined) this.provider.answered();
    if (request.phase !== 'asking' && request.phase !== 'queued') return;
    this.#turnSince = undefined;
    if (request.phase === 'asking') this.#become(request, 'queued');
    request.sent ||= instead === undefined;
    request.rounds = 1;
    request.failure = instead;
    this.#callers.head?.waits(instead);
    this.#refuseLate();
  }

  released(grant: HeldGrant, intent: ReleaseIntent): Promise<ReleaseOutcome> {
    const now = this.provider.clock.now();
    const next = this.#callers.head;
    if (next === undefined || !this.#mayFollow(next, grant, now)) return this.#giveBack(grant, intent, now);
    grant.handOff();
    this.#callers.remove(next);
    next.enter(grant, now);
    this.#advance();
    return Promise.resolve('released');
  }

  lost(grant: HeldGrant): void {
    void this.#giveBack(grant, { keepUntil: grant.keepUntil, failed: true });
  }

  /** Sees to it that the head is asked for, unless this process holds the key alone. */
  #advance(): void {
    // First, because it may find that a grant is over, which ends with a look from here.
    const isHeldAlone = this.#grants.size > 0 && this.#isHeldAlone();
    const head = this.#callers.head;
    const request = this.#request;
    if (request !== undefined) {
      if (head !== undefined && request.fits(head)) {
        request.oldest = head;
        return;
      }
      void this.#giveUp(request);
    }
    if (head === undefined) {
      if (this.#grants.size === 0) this.onEmpty(this);
    } else if (isHeldAlone) this.#refuseLate();
    else if (head.isLate && this.#isHeldBeside(head)) {
      this.#callers.remove(head);
      head.refuseBusy(true);
      this.#advance();
    } else this.#ask(this.#newRequest(head));
  }

  #newRequest(head: Caller): KeyRequest {
    const { clock, random } = this.provider;
    this.#request = new KeyRequest(head, random.id(), this, clock);
    return this.#request;
  }

  #ask(request: KeyRequest): void {
    const { clock, suspension, releases } = this.provider;
    const now = clock.now();
    if (this.#retry !== undefined) this.#endPause(this.#retry);
    this.#become(request, 'asking');
    request.askedAt = now;
    request.askedFor = request.oldest;
    request.suspensions = suspension.recent(now);
    request.rounds += 1;
    releases.begin();
    detached(this.#send, request);
  }

  readonly #send = (request: KeyRequest): void => {
    const { backend, releases } = this.provider;
    const onAnswer = (answer: Grant | 'busy'): void => {
      if (request === this.#request) this.#onAnswer(request, answer);
      // Its id is dead. A grant that comes all the same is released whenever it comes.
      else if (answer !== 'busy') void this.#release(request, true);
      releases.end();
    };
    const onFailure = (error: unknown): void => {
      this.#onFailure(request, error);
      releases.end();
    };
    void promised(() => backend.acquire(request)).then(onAnswer, onFailure);
  };

  #onAnswer(request: KeyRequest, answer: Grant | 'busy'): void {
    const { provider } = this;
    const now = provider.clock.now();
    const { askedFor } = request;
    if (answer === 'busy') {
      provider.answered();
      this.#endRequest(request);
      this.#onBusy(request, askedFor);
    } else if (
      !request.isRevoked &&
      now < answer.validUntil &&
      // An answer is as fresh as the clock says only if the machine was not suspended.
      provider.suspension.observeGrant(now) === request.suspensions
    ) {
      provider.answered();
      this.#endRequest(request);
      this.#admit(request, answer, now);
      this.#advance();
    } else {
      void this.#giveUp(request);
      if (this.#callers.head !== undefined) this.#pause(this.#newRequest(this.#callers.head), request.rounds);
      this.#refuseLate();
      this.#advance();
    }
  }

  /** The backend refuses the caller that it was asked for, and late ones that want as much. */
  #onBusy(request: KeyRequest, askedFor: Caller | undefined): void {
    for (const caller of this.#callers.all()) {
      if (!caller.isQueued) continue;
      if (caller !== askedFor && !(caller.isLate && wantsNoLess(caller, request))) continue;
      this.#callers.remove(caller);
      caller.refuseBusy(false);
    }
    this.#advance();
  }

  #admit(request: KeyRequest, grant: Grant, now: number): void {
    const { clock, random, suspension } = this.provider;
    const { suspensions, isAlone, limited } = request;
    // Several limited grants are handed on side by side. If all callers come again at once, the same ones would always be the last under a grant
    // and wait for its release: they had half as many turns as the others. At random, a grant ends one caller earlier.
    const skipped = limited && random.fraction() < 0.5 ? 1 : 0;
    const held = new HeldGrant(
      request,
      grant,
      now,
      this.#callers.arrivals - skipped,
      suspensions,
      !isAlone,
      this,
      clock,
      suspension,
    );
    request.held = held;
    this.#grants.set(held, request);
    let caller = this.#callers.head;
    while (caller !== undefined) {
      this.#callers.remove(caller);
      caller.enter(held, now);
      caller = this.#callers.head;
      if (request.mode !== 'shared' || caller === undefined || !request.fits(caller)) break;
    }
  }

  #onFailure(request: KeyRequest, error: unknown): void {
    request.sent ||= wasSent(error);
    if (request !== this.#request) return;
    if (isRetryable(error)) {
      this.provider.failed(error);
      request.failure = error;
      this.#pause(request, request.rounds);
      this.#refuseLate();
      return;
    }
    // It has answered the caller that it was asked for, and the others may get another answer.
    const { askedFor } = request;
    this.#become(request, 'pausing');
    void this.#giveUp(request);
    if (askedFor?.isQueued) {
      this.#callers.remove(askedFor);
      askedFor.refuse(error);
    }
    this.#advance();
  }

  /** @param round how often it was asked for in vain */
  #pause(request: KeyRequest, round: number): void {
    this.#become(request, 'pausing');
    request.rounds = round;
    if (request.isAlone && request.failure !== undefined) {
      request.oldest?.unanswered(request.failure);
      return;
    }
    const { clock, random } = this.provider;
    const ask = () => {
      this.#ask(request);
    };
    this.#retry = clock.setTimer(ask, backOff(random, round - 1, RETRY), true);
  }

  #endPause(timer: Timer): void {
    this.provider.clock.clearTimer(timer);
    this.#retry = undefined;
  }

  /** Whether the holder's own process goes on under the grant. */
  #mayFollow(caller: Caller, grant: HeldGrant, now: number): boolean {
    const { mode, renew, minHold } = grant.request;
    return (
      grant.followers > 0 &&
      mode !== 'shared' &&
      renew &&
      minHold === 0 &&
      caller.arrival <= grant.arrivals &&
      now - grant.grantedAt <= COHORT_TIME &&
      now < grant.validUntil &&
      this.#grants.get(grant)?.fits(caller) === true &&
      grant.isVerifiedAt(now)
    );
  }

  #giveBack(grant: HeldGrant, intent: ReleaseIntent, now = this.provider.clock.now()): Promise<ReleaseOutcome> {
    const { capabilities, clock, holds, releases } = this.provider;
    grant.end();
    this.#grants.delete(grant);
    holds.ended(grant);
    if (capabilities.fair) this.#advance();
    const released = releases.send(grant.request, intent, Math.max(grant.mayBeKeptFor, intent.keepUntil - now));
    if (!capabilities.fair) this.#advanceAfterRelease(clock.now());
    return released;
  }

  /** Asks for the head behind the release, unless it is the turn of other processes. */
  #advanceAfterRelease(now: number): void {
    const head = this.#callers.head;
    this.#turnSince ??= now;
    if (head !== undefined && this.#request === undefined && now - this.#turnSince >= TURN) {
      this.#turnSince = undefined;
      this.#pause(this.#newRequest(head), 1);
    }
    this.#advance();
  }

  /** The request serves nobody any more. */
  #giveUp(request: KeyRequest): Promise<ReleaseOutcome> {
    const isAsked = request.askedAt !== -Infinity;
    const isSent = request.sent || request.phase !== 'pausing';
    this.#endRequest(request);
    request.abort();
    return isAsked ? this.#release(request, isSent) : Promise.resolve('lost');
  }

  /** Releases what it was granted, or may have been. One that was never sent is released only for what the backend knows of it here. */
  #release(request: KeyRequest, isSent: boolean): Promise<ReleaseOutcome> {
    const { lease, minHold } = request;
    return this.provider.releases.send(request, UNUSED, isSent ? Math.max(lease, minHold, QUEUED_FOR) : 0);
  }

  #endRequest(request: KeyRequest): void {
    if (this.#retry !== undefined) this.#endPause(this.#retry);
    this.#become(request, 'over');
    request.oldest = undefined;
    request.askedFor = undefined;
    this.#request = undefined;
  }

  #become(request: KeyRequest, phase: KeyRequest['phase']): void {
    const { suspension } = this.provider;
    if (request.phase === 'queued') suspension.queued(-1);
    if (phase === 'queued') suspension.queued(1);
    request.phase = phase;
  }

  /** Whether a late caller gets its answer without an ask, which is then given. */
  #refuses(caller: Caller): boolean {
    const isHeld = this.#isHeldBeside(caller);
    const isRefused = isHeld || (this.#request !== undefined && this.provider.clock.now() >= this.#answerDueAt(caller));
    if (isRefused) this.#refuse(caller, isHeld);
    return isRefused;
  }

  /** Its wait is over. What is not known to be busy is unavailable: the backend was asked, and has not answered. */
  #refuse(caller: Caller, isHeldHere = this.#isHeldBeside(caller)): void {
    const { phase, failure } = this.#request ?? {};
    if (isHeldHere) caller.refuseBusy(true);
    else if (phase === 'asking' || this.#isRepeating) caller.refuseUnavailable(failure);
    else if (failure !== undefined) caller.refuse(failure);
    else if (this.unansweredFor >= ANSWER_TIMEOUT) caller.refuseUnavailable(undefined);
    else caller.refuseBusy(false);
  }

  /** Those that waited only for the answer have it, unless it was a failure and the backend may still connect again in their time. */
  #refuseLate(): void {
    if (this.#callers.late === 0) return;
    const now = this.provider.clock.now();
    for (const caller of this.#callers.all()) {
      if (!caller.isLate || !caller.isQueued || (this.#isRepeating && now < this.#answerDueAt(caller))) continue;
      this.#callers.remove(caller);
      this.#refuse(caller);
    }
    this.#advance();
  }

  /** The ask has failed, and is sent again. */
  get #isRepeating(): boolean {
    return this.#request?.phase === 'pausing' && this.#request.failure !== undefined;
  }

  /**
   * Until when a caller whose wait is over waits for an answer. With `wait: 0` it does not wait for a holder, but it does for a connection: the
   * one in use may be dead without a sign, as behind a NAT that has forgotten it, and is replaced after `commandTimeout`. So where the
   * backend connects again by itself, a request that has failed is sent again within `commandTimeout` and a round trip.
   *
   * While the backend is known to be down for longer, a call fails with its first ask, so that an outage costs one ask for each call. An ask
   * that crosses the deadline is waited for as long as one that is sent at it.
   */
  #answerDueAt({ deadline, terms: { startedAt } }: Caller): number {
    const { backend, downSince } = this.provider;
    const { commandTimeout = -Infinity } = backend;
    const { phase, askedAt = -Infinity } = this.#request ?? {};
    const repeatedUntil = Math.min(startedAt + commandTimeout, downSince) + ANSWER_TIMEOUT;
    if (this.#isRepeating) return repeatedUntil;
    if (phase !== 'asking' && this.unansweredFor < Infinity) return -Infinity;
    return Math.max(Math.max(askedAt, deadline) + ANSWER_TIMEOUT, repeatedUntil);
  }

  #isHeldAlone(): boolean {
    for (const grant of this.#grants.keys()) if (grant.request.mode === 'exclusive' && grant.isValid()) return true;
    return false;
  }

  /** Whether this process holds what excludes the caller. */
  #isHeldBeside({ terms: { subject } }: Caller): boolean {
    for (const grant of this.#grants.keys()) {
      if (excludes(grant.request.mode, subject.mode) && grant.isValid()) return true;
    }
    return false;
  }
}

/** Whether a caller is busy if the request was a moment ago. */
function wantsNoLess({ terms: { subject, limited } }: Caller, request: KeyRequest): boolean {
  if (limited && request.limited) {
    return limited.weight >= request.limited.weight && limited.limit <= request.limited.limit;
  }
  return subject.mode === 'exclusive' || subject.mode === request.mode;
}
