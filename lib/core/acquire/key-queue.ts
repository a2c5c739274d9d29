import type { LockError } from '../../api/errors.js';
import type { ReleaseOutcome } from '../../api/lock-provider.js';
import { asItIs, type OnReleased, type ReleaseIntent } from '../hold/releases.js';
import type { ProviderCore } from '../provider-core.js';
import { Few } from '../toolkit/few.js';
import { type CallerQueue, wantsNoLess } from './caller.js';
import { CallerList } from './caller-list.js';
import type { KnownHolding } from './holder-report.js';
import { holdingBeside } from './holding-beside.js';
import { KeyRequest, type RequestCaller, type RequestQueue } from './key-request.js';
import { answerDueAt, refuseUnanswered } from './patience.js';
import { excludes } from './re-entry.js';
import { NOT_ASKED } from './refusals.js';

// A bound on memory. Under overload a short wait is the better limit.
const MAX_WAITERS = 10_000;

// Where the backend is polled, others ask at random moments. A process that asks with each release would keep them out for as long as callers
// come to it. So after this time, in ms, it pauses as after a request that was not answered.
const TURN = 50;

/**
 * The callers of one key in this process, which hold equally many other keys: who enters, and when a request is made for them.
 *
 * There is at most one request, on behalf of the oldest caller, the head. What the backend grants, it grants to the process: the head
 * enters, with the readers directly behind it. When a holder releases, the head may enter under the same grant, as a cohort (lock
 * cohorting, after Dice, Marathe and Shavit, PPoPP 2012). Otherwise the next request is sent together with the release: before it where
 * the backend has a queue, so that the release sees all who wait, and after it where the backend is polled.
 *
 * A request is repeated while its outcome is unknown. Its id is dead as soon as a release was sent for it; a grant that comes later is
 * released. So is a grant that was over before it was received, and the head is asked for under a new id.
 */
export class KeyQueue implements CallerQueue, RequestQueue {
  readonly #callers = new CallerList();
  #request: KeyRequest | undefined;
  readonly #held = new Few<KeyRequest>();
  #enteredAt = -Infinity;
  /** Where the backend is polled: since when this process asks again with each release, on the monotonic clock. */
  #turnSince: number | undefined;

  constructor(
    readonly key: string,
    readonly otherKeysHeld: number,
    private readonly core: ProviderCore,
    /** How many callers of this application may wait. */
    /** Called when it has become empty. */
    private readonly onEmpty: (queue: KeyQueue) => void,
  ) {}

  /** How many callers wait. */
  get size(): number {
    return this.#callers.size;
  }

  /** Nobody is left, and nothing is held or asked for. */
  get isEmpty(): boolean {
    return this.#callers.size === 0 && this.#held.size === 0 && this.#request === undefined;
  }

  /** The request that asks on behalf of this caller, and was not answered yet. */
  askingFor(caller: RequestCaller): KeyRequest | undefined {
    return this.#request?.isAsking && this.#callers.head === caller ? this.#request : undefined;
  }

  get isFull(): boolean {
    return this.#callers.size >= MAX_WAITERS;
  }

  get enteredAt(): number {
    return this.#enteredAt;
  }

  get arrivals(): number {
    return this.#callers.arrivals;
  }

  /** The grants that this process holds. */
  get held(): readonly KeyRequest[] {
    return this.#held.values();
  }

  /** The callers, the oldest first. */
  get callers(): readonly RequestCaller[] {
    return this.#callers.all();
  }

  /** When the oldest caller came, on the monotonic clock. */
  get since(): number {
    return this.#callers.head?.since ?? Infinity;
  }

  // Callers come and leave.

  /** A caller comes. */
  add(caller: RequestCaller): void {
    if (caller.isLate && this.#refuseIfLate(caller)) return;
    const isFirst = this.#callers.head === undefined;
    this.#callers.add(caller);
    this.#advance();
    if (caller.isQueued && (!isFirst || this.#request === undefined)) caller.waits();
    // A listener of that may have sent it away.
    if (caller.isQueued) caller.wakeAt(caller.isLate ? answerDueAt(caller, this.#request, this.core) : caller.deadline);
  }

  /**
   * A caller comes before its turn, to a queue that {@link isEmpty}. It is asked for only if `after` is granted. Until {@link onTurn} it has no timer,
   * because nothing is reported of it.
   */
  addBehind(after: KeyRequest, caller: RequestCaller): void {
    this.#callers.add(caller);
    this.#request = new KeyRequest(caller, this, this.core, after);
    this.#request.ask();
  }

  /** A caller that was asked for before its turn has it now: from here on it waits for the answer. */
  onTurn(caller: RequestCaller): void {
    if (!caller.isQueued) return;
    this.#request?.onTurn();
    this.onTime(caller);
  }

  leave(caller: RequestCaller, error: unknown): void {
    if (!caller.isQueued) return;
    this.#callers.remove(caller);
    caller.refuse(error);
    this.#advance();
  }

  /** The deadline of the caller has passed, or the answer is overdue that it waits for. */
  onTime(caller: RequestCaller): void {
    this.expireHeld();
    if (!caller.isQueued) return;
    const now = this.core.clock.now();
    const request = this.#request;
    if (now < caller.deadline) caller.wakeAt(caller.deadline);
    else if (now < answerDueAt(caller, request, this.core)) {
      this.#callers.setLate(caller, true);
      caller.wakeAt(answerDueAt(caller, request, this.core));
    } else {
      if (request?.isAsking) this.core.reachability.failed(request.failure);
      this.#callers.remove(caller);
      this.#refuse(caller);
      this.#advance();
    }
  }

  // The backend answers.

  /** Its request pauses before it is sent again. */
  get isPausing(): boolean {
    return this.#request?.isPausing === true;
  }

  /** The backend answers again: a request that pauses is sent now. */
  hurry(): void {
    if (this.isPausing) this.#request?.ask();
  }

  onQueued(instead: LockError | undefined): void {
    this.#turnSince = undefined;
    this.#callers.head?.waits(instead);
    this.#refuseLate();
  }

  onGranted(request: KeyRequest, now: number): void {
    this.#request = undefined;
    this.#held.add(request);
    this.core.watchdog.add(request, now);
    let caller = this.#callers.head;
    while (caller !== undefined) {
      this.#letIn(caller, request, now);
      caller = this.#callers.head;
      if (request.mode !== 'shared' || caller === undefined || !request.fits(caller)) break;
    }
    this.#advance();
  }

  onBusy(request: KeyRequest, askedFor: RequestCaller | undefined): void {
    this.#request = undefined;
    // Late callers that want as much are busy, too.
    for (const caller of this.#callers.all()) {
      if (!caller.isQueued) continue;
      if (caller !== askedFor && !(caller.isLate && wantsNoLess(caller.terms, request))) continue;
      this.#callers.remove(caller);
      caller.refuseBusy(this.holdingBeside(caller, request));
    }
    this.#advance();
  }

  onNotAsked(askedFor: RequestCaller | undefined): void {
    this.#request = undefined;
    if (askedFor?.isQueued) this.leave(askedFor, NOT_ASKED);
    else this.#advance();
  }

  onGrantTooLate(request: KeyRequest): void {
    void this.#giveUp(request);
    const head = this.#callers.head;
    if (head !== undefined) this.#newRequest(head).pause(request.rounds);
    this.#refuseLate();
    this.#advance();
  }

  onUnanswered(): void {
    this.#refuseLate();
  }

  onFailed(request: KeyRequest, error: unknown, askedFor: RequestCaller | undefined): void {
    void this.#giveUp(request);
    if (askedFor?.isQueued) this.leave(askedFor, error);
    else this.#advance();
  }

  onReleased<R>(request: KeyRequest, intent: ReleaseIntent, now: number, answer: OnReleased<R>): Promise<R> {
    const next = this.#callers.head;
    if (next === undefined || !request.mayServe(next, now)) return this.#giveBack(request, intent, now, answer);
    request.handOff();
    this.#letIn(next, request, now);
    this.#advance();
    return Promise.resolve(answer('released'));
  }

  onLost(request: KeyRequest): void {
    void this.#giveBack(request, { keepUntil: request.keepUntil, failed: true }, this.core.clock.now(), asItIs);
  }

  #letIn(caller: RequestCaller, request: KeyRequest, now: number): void {
    this.#callers.remove(caller);
    caller.enter(request, now);
    this.#enteredAt = now;
  }

  // The next step.

  /** Sees to it that the head is asked for, after what is over by the clock has ended. With nobody waiting, that is left to the watchdog. */
  #advance(): void {
    if (this.#callers.size > 0) this.expireHeld();
    this.#askForHead();
  }

  /** The head is asked for, unless this process holds the key alone. */
  #askForHead(): void {
    const head = this.#callers.head;
    const request = this.#request;
    if (request !== undefined) {
      if (head !== undefined && request.fits(head)) {
        request.askFor(head);
        return;
      }
      void this.#giveUp(request);
    }
    if (head === undefined) {
      if (this.#held.size === 0) this.onEmpty(this);
    } else if (this.#isHeldAlone()) this.#refuseLate();
    else if (head.isLate && this.#isHeldBeside(head)) {
      this.#callers.remove(head);
      head.refuseBusy(this.holdingBeside(head));
      this.#advance();
    } else this.#newRequest(head).ask();
  }

  #newRequest(head: RequestCaller): KeyRequest {
    return (this.#request = new KeyRequest(head, this, this.core));
  }

  #giveUp(request: KeyRequest): Promise<ReleaseOutcome> {
    this.#request = undefined;
    return request.giveUp();
  }

  /** Ends what this process holds that is over by the clock. Callers and listeners learn it, so all may be different afterwards. */
  expireHeld(): void {
    if (this.#held.size === 0) return;
    const now = this.core.clock.now();
    for (const request of this.#held.values()) request.expire(now);
  }

  #giveBack<R>(request: KeyRequest, intent: ReleaseIntent, now: number, answer: OnReleased<R>): Promise<R> {
    const { capabilities, clock, watchdog } = this.core;
    request.retire();
    this.#held.delete(request);
    // Before its release is sent, so that no renewal follows it.
    watchdog.remove(request);
    if (capabilities.fair) this.#askForHead();
    const released = request.giveBack(intent, now, answer);
    if (!capabilities.fair) this.#advanceAfterRelease(clock.now());
    return released;
  }

  /** Asks for the head behind the release, unless it is the turn of other processes. */
  #advanceAfterRelease(now: number): void {
    const head = this.#callers.head;
    // Without callers left, this process keeps nobody out.
    if (head === undefined) this.#turnSince = undefined;
    else {
      this.#turnSince ??= now;
      if (this.#request === undefined && now - this.#turnSince >= TURN) {
        this.#turnSince = undefined;
        this.#newRequest(head).pause(1);
      }
    }
    this.#advance();
  }

  #isHeldAlone(): boolean {
    if (this.#held.size === 0) return false;
    const now = this.core.clock.now();
    for (const request of this.#held.values()) if (request.mode === 'exclusive' && request.isValid(now)) return true;
    return false;
  }

  /** Whether this process holds what excludes the caller. */
  #isHeldBeside({ terms }: RequestCaller): boolean {
    if (this.#held.size === 0) return false;
    const now = this.core.clock.now();
    for (const request of this.#held.values()) {
      if (excludes(request.mode, terms.mode) && request.isValid(now)) return true;
    }
    return false;
  }

  /** The holder that keeps the caller out, if it is known. */
  holdingBeside({ terms }: RequestCaller, request = this.#request): KnownHolding | null {
    return holdingBeside(terms.mode, this.held, request, this.core);
  }

  // Callers whose wait is over.

  /** Gives a late caller its answer where no ask is needed for it. Answers whether there was one. */
  #refuseIfLate(caller: RequestCaller): boolean {
    const isAnswered =
      this.#isHeldBeside(caller) ||
      (this.#request !== undefined && this.core.clock.now() >= answerDueAt(caller, this.#request, this.core));
    if (isAnswered) this.#refuse(caller);
    return isAnswered;
  }

  /** Those that waited only for the answer have it, unless it was a failure and the backend may still connect again in their time. */
  #refuseLate(): void {
    if (this.#callers.late === 0) return;
    const now = this.core.clock.now();
    for (const caller of this.#callers.all()) {
      if (!caller.isLate || !caller.isQueued) continue;
      if (this.#request?.isRepeating && now < answerDueAt(caller, this.#request, this.core)) continue;
      this.#callers.remove(caller);
      this.#refuse(caller);
    }
    this.#advance();
  }

  /** Its wait is over. */
  #refuse(caller: RequestCaller): void {
    const request = this.#request;
    if (!this.#isHeldBeside(caller) && refuseUnanswered(caller, request, this.core)) return;
    caller.refuseBusy(this.holdingBeside(caller));
  }
}
