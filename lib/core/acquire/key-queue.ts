import type { LossReason } from '../../api/errors.js';
import type { LockMode } from '../../api/lock-mode.js';
import type { HeldGrant } from '../hold/held-grant.js';
import type { Holder } from '../hold/holder.js';
import { asItIs, type OnReleased } from '../hold/releases.js';
import type { ProviderCore } from '../provider-core.js';
import { Few } from '../toolkit/few.js';
import { answerDueAt, refusalAfter } from './answer-deadline.js';
import { KeyRequest } from './key-request.js';
import type { Refusal } from './lock-observer.js';
import type { RequestChange } from './request-stage.js';
import { PollingTurn } from './polling-turn.js';
import type { Terms } from '../plan/lock-settings.js';
import { excludes } from './re-entry.js';
import type { Waiter } from './waiter.js';
import { WaiterList } from './waiter-list.js';

// A bound on memory. Under overload a short wait is the better limit.
const MAX_WAITERS = 10_000;

const BUSY: Refusal = { why: 'busy' };

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
export class KeyQueue {
  readonly #waiters = new WaiterList();
  #request: KeyRequest | undefined;
  readonly #held = new Few<HeldGrant>();
  #enteredAt = -Infinity;
  readonly #turn = new PollingTurn();

  constructor(
    readonly key: string,
    readonly otherKeysHeld: number,
    readonly core: ProviderCore,
    /** Called when it has become empty. */
    private readonly onEmpty: (queue: KeyQueue) => void,
  ) {}

  /** How many callers wait. */
  get size(): number {
    return this.#waiters.size;
  }

  /** Nobody is left, and nothing is held or asked for. */
  get isEmpty(): boolean {
    return this.#waiters.size === 0 && this.#held.size === 0 && this.#request === undefined;
  }

  /** What is asked for now. */
  get request(): KeyRequest | undefined {
    return this.#request;
  }

  /** The request that asks on behalf of this caller, and was not answered yet. */
  askingFor(waiter: Waiter): KeyRequest | undefined {
    return this.#request?.isAsking && this.#waiters.head === waiter ? this.#request : undefined;
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

  /** The grants that this process holds. */
  get held(): readonly HeldGrant[] {
    return this.#held.values();
  }

  /** The callers, the oldest first. */
  get waiters(): readonly Waiter[] {
    return this.#waiters.all();
  }

  /** When the oldest caller came, on the monotonic clock. */
  get since(): number {
    return this.#waiters.head?.since ?? Infinity;
  }

  // Callers come and leave.

  /** One more comes. What is over by the clock has ended before. */
  add(waiter: Waiter): void {
    if (waiter.isLate && this.#isAnswered(waiter)) {
      waiter.refuse(this.#refusalOf(waiter));
      return;
    }
    const isFirst = this.#waiters.head === undefined;
    this.#waiters.add(waiter);
    this.#askForHead();
    if (waiter.isQueued && (!isFirst || this.#request === undefined)) waiter.waits();
    // A listener of that may have sent it away.
    if (waiter.isQueued) waiter.wakeAt(waiter.isLate ? this.#answerDueAt(waiter) : waiter.deadline);
  }

  /**
   * One comes before its turn, to a queue that {@link isEmpty}. It is asked for only if `after` is granted. Until {@link onTurn} it has no timer,
   * because nothing is reported of it.
   */
  addBehind(after: KeyRequest, waiter: Waiter): void {
    this.#waiters.add(waiter);
    this.#request = new KeyRequest(waiter, this, after);
    this.#request.ask();
  }

  /** One that was asked for before its turn has it now: from here on it waits for the answer. */
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

  /** The deadline of the waiter has passed, or the answer is overdue that it waits for. */
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
      if (request?.isAsking) this.core.reachability.failed(request.failure);
      this.leave(waiter, this.#refusalOf(waiter));
    }
  }

  #refuse(waiter: Waiter, refusal: Refusal): void {
    this.#waiters.remove(waiter);
    waiter.refuse(refusal);
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

  /** What has happened to the request of this queue. */
  onChange(request: KeyRequest, change: RequestChange): void {
    switch (change.to) {
      case 'queued':
        this.#turn.end();
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
      case 'outrun':
        this.#request = undefined;
        if (this.#waiters.head !== undefined) this.#newRequest(this.#waiters.head).pause(request.rounds);
        this.#refuseLate();
        break;
      case 'busy':
        this.#request = undefined;
        this.#refuseBusy(request, change.askedFor);
        break;
      case 'failed': {
        this.#request = undefined;
        const { error, askedFor } = change;
        if (askedFor?.isQueued) this.#refuse(askedFor, { why: 'failed', error });
        break;
      }
    }
    this.#advance();
  }

  /** The head enters, with the readers directly behind it. */
  #letInUnder(grant: HeldGrant): void {
    const now = grant.grantedAt;
    this.#held.add(grant);
    this.core.watchdog.add(grant, now);
    let next = this.#waiters.head;
    while (next !== undefined) {
      this.#letIn(next, grant, now);
      next = this.#waiters.head;
      if (grant.request.mode !== 'shared' || next === undefined || !grant.request.fits(next)) return;
    }
  }

  #letIn(waiter: Waiter, grant: HeldGrant, now: number): void {
    this.#waiters.remove(waiter);
    waiter.enter(grant, now);
    this.#enteredAt = now;
  }

  #refuseBusy(request: KeyRequest, askedFor: Waiter | undefined): void {
    const refusal: Refusal = { why: 'busy', request };
    for (const waiter of this.#waiters.all()) {
      // Late ones that want as much are busy, too.
      const isBusy = waiter === askedFor || (waiter.isLate && wantsNoLess(waiter.terms, request));
      if (isBusy && waiter.isQueued) this.#refuse(waiter, refusal);
    }
  }

  // What is held ends.

  /** A holder ends its hold. Resolves to what `answer` makes of the outcome, in the tick in which that comes. */
  release<R>(holder: Holder, failed: boolean, now: number, answer: OnReleased<R>): Promise<R> {
    const { grant } = holder;
    if (grant.remove(holder) > 0) return Promise.resolve(answer('released'));
    const next = this.#waiters.head;
    if (next === undefined || !grant.request.fits(next) || !grant.mayServe(next.arrival, now))
      return this.#giveBack(grant, failed, now, answer);
    grant.handOff();
    this.#letIn(next, grant, now);
    this.#advance();
    return Promise.resolve(answer('released'));
  }

  /** A grant is lost. */
  lose(grant: HeldGrant, reason: LossReason, cause: unknown): void {
    const { holders } = grant;
    grant.end();
    // Each has lost it and the backend has it back before anybody is told: a listener may release another reader, or ask for the key again.
    for (const holder of holders) holder.lose(reason, cause);
    void this.#giveBack(grant, true, this.core.clock.now(), asItIs);
    for (const holder of holders) holder.onLost();
  }

  /** Ends what this process holds that is over by the clock. Holders and listeners learn it, so all may be different afterwards. */
  expireHeld(): void {
    if (this.#held.size === 0) return;
    const now = this.core.clock.now();
    for (const grant of this.#held.values()) grant.expire(now);
  }

  #giveBack<R>(grant: HeldGrant, failed: boolean, now: number, answer: OnReleased<R>): Promise<R> {
    const { capabilities, clock, releases, watchdog } = this.core;
    const { request, keepUntil } = grant;
    grant.end();
    this.#held.delete(grant);
    // Before its release is sent, so that no renewal follows it.
    watchdog.remove(grant);
    if (capabilities.fair) this.#askForHead();
    const lasting = Math.max(grant.lease.longest, keepUntil - now);
    const released = releases.send(request, { keepUntil, failed }, lasting, answer, now);
    if (!capabilities.fair) this.#advanceAfterRelease(clock.now());
    return released;
  }

  // The next step.

  /** Sees to it that the head is asked for, after what is over by the clock has ended. With nobody waiting, that is left to the watchdog. */
  #advance(): void {
    if (this.#waiters.size > 0) this.expireHeld();
    this.#askForHead();
  }

  /** The head is asked for, unless this process holds the key alone. */
  #askForHead(): void {
    const head = this.#waiters.head;
    const request = this.#request;
    if (request !== undefined) {
      if (head !== undefined && request.fits(head)) {
        request.askFor(head);
        return;
      }
      this.#request = undefined;
      request.giveUp();
    }
    if (head === undefined) {
      if (this.#held.size === 0) this.onEmpty(this);
    } else if (this.#isHeldAlone()) this.#refuseLate();
    else if (head.isLate && this.#isHeldBeside(head)) {
      this.#refuse(head, BUSY);
      this.#advance();
    } else this.#newRequest(head).ask();
  }

  #newRequest(head: Waiter): KeyRequest {
    return (this.#request = new KeyRequest(head, this));
  }

  /** Asks for the head behind the release, unless it is the turn of other processes. */
  #advanceAfterRelease(now: number): void {
    const head = this.#waiters.head;
    // Without callers left, this process keeps nobody out.
    if (head === undefined) this.#turn.end();
    else if (this.#turn.isOver(now) && this.#request === undefined) {
      this.#turn.end();
      this.#newRequest(head).pause(1);
    }
    this.#advance();
  }

  #isHeldAlone(): boolean {
    return this.#holdsWhat((mode) => mode === 'exclusive');
  }

  /** Whether this process holds what excludes the caller. */
  #isHeldBeside({ terms }: Waiter): boolean {
    return this.#holdsWhat((mode) => excludes(mode, terms.mode));
  }

  #holdsWhat(keepsOut: (mode: LockMode) => boolean): boolean {
    if (this.#held.size === 0) return false;
    const now = this.core.clock.now();
    return this.#held.values().some((grant) => keepsOut(grant.request.mode) && grant.isValid(now));
  }

  // The end of a wait.

  /** Whether a late one has its answer where no ask is needed for it. */
  #isAnswered(waiter: Waiter): boolean {
    if (this.#isHeldBeside(waiter)) return true;
    return this.#request !== undefined && this.core.clock.now() >= this.#answerDueAt(waiter);
  }

  /** Those that waited only for the answer have it, unless it was a failure and the backend may still connect again in their time. */
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
    if (request === undefined || this.#isHeldBeside(waiter)) return BUSY;
    return refusalAfter(request, this.core.clock.now());
  }

  #answerDueAt(waiter: Waiter): number {
    return answerDueAt(waiter, this.#request, this.core);
  }
}

/** Whether a caller with these terms is busy if a request with the others was, a moment ago. */
function wantsNoLess({ mode, limited }: Terms, others: Pick<Terms, 'mode' | 'limited'>): boolean {
  if (limited && others.limited)
    return limited.weight >= others.limited.weight && limited.limit <= others.limited.limit;
  return mode === 'exclusive' || mode === others.mode;
}
