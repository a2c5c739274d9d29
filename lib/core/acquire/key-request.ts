import type { Clock, Timer } from '../../api/clock.js';
import type { LockError, LossReason } from '../../api/errors.js';
import type { LimitShare, LockMode } from '../../api/lock-mode.js';
import type {
  AcquireRequest,
  Grant,
  Holding,
  LockBackend,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import type { Random } from '../../api/random.js';
import type { Reachability } from '../events/reachability.js';
import { Cohort } from '../hold/cohort.js';
import { HeldLease } from '../hold/held-lease.js';
import { asItIs, type OnReleased, type ReleaseIntent, type Releases } from '../hold/releases.js';
import { answerOr } from '../toolkit/answer-or.js';
import type { Placed } from '../toolkit/dense-set.js';
import { detached } from '../toolkit/detached.js';
import { Few } from '../toolkit/few.js';
import { promised } from '../toolkit/promised.js';
import { isRetryable, wasSent } from '../toolkit/retryable.js';
import type { SuspensionDetector } from '../toolkit/suspension.js';
import { backOff } from '../toolkit/timing.js';
import type { Caller } from './caller.js';

/** The most callers that one grant serves one after the other. */
const LARGEST_COHORT = 64;
const RETRY = { first: 50, most: 1_000 };

/** A caller of this core. */
export type RequestCaller = Caller<KeyRequest>;

/** Where a request is made. An interface only because queues import their requests. */
export interface RequestQueue {
  readonly key: string;
  readonly otherKeysHeld: number;
  /** How many callers have come so far. */
  readonly arrivals: number;
  /** The request waits at the backend: for the lock, or for what `instead` names. */
  onQueued(instead: LockError | undefined): void;
  /** This process holds by it from `now` on. */
  onGranted(request: KeyRequest, now: number): void;
  /** The request is over: the backend has refused it, on behalf of this caller. */
  onBusy(request: KeyRequest, askedFor: RequestCaller | undefined): void;
  /** The request is over: it was asked for behind another that was not granted, on behalf of this caller. */
  onNotAsked(askedFor: RequestCaller | undefined): void;
  /** The request was not answered, and will be sent again. */
  onUnanswered(): void;
  /** The request is to be given up: its grant was over when it arrived. */
  onGrantTooLate(request: KeyRequest): void;
  /** The request is to be given up: it failed in a way that no repetition changes. */
  onFailed(request: KeyRequest, error: unknown, askedFor: RequestCaller | undefined): void;
  /** Its last holder has released it. */
  onReleased<R>(request: KeyRequest, intent: ReleaseIntent, now: number, answer: OnReleased<R>): Promise<R>;
  /** The request is over: it was granted, and is lost. */
  onLost(request: KeyRequest): void;
}

/** The parts of its provider that a request needs. */
export interface RequestCore {
  readonly clock: Clock;
  readonly random: Random;
  readonly suspension: SuspensionDetector;
  readonly backend: Pick<LockBackend, 'acquire' | 'renew' | 'unansweredFor' | 'heldBy'>;
  readonly releases: Releases;
  readonly reachability: Reachability;
}

/**
 * A lock that this process asks a backend for under one id, and then has: on behalf of the oldest caller of a queue, which it outlives if it fits the
 * next. When it is granted, one holder at a time has it, or readers together.
 *
 * - `pausing`: it was not sent yet, or its last ask was not answered. It will be sent.
 * - `asking`: its ask is in flight, and the backend has neither answered nor queued it.
 * - `queued`: it waits at the backend.
 * - `granted`: this process holds by it.
 * - `over`: it was refused, given up, given back or lost. Its id is dead, and it keeps no caller that waits or holds.
 *
 * Its questions look at the clock and change nothing. {@link expire} ends a grant that is over by the clock; each question of a user is preceded by it.
 */
export class KeyRequest implements AcquireRequest, Placed {
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
  /** Among what callers of this process hold. */
  place = -1;
  #phase: 'pausing' | 'asking' | 'queued' | 'granted' | 'over' = 'pausing';
  /** The caller that it asks for now. */
  #oldest: RequestCaller | undefined;
  /** The caller that was the oldest when it was last sent. */
  #askedFor: RequestCaller | undefined;
  /** When it was last sent, or its caller had its turn since. On the monotonic clock. */
  #askedAt = -Infinity;
  /** How many suspensions of the machine were known then. */
  #suspensions = 0;
  /** How often it was sent without an answer. */
  #rounds = 0;
  /** Something of it may have reached the server. */
  #sent = false;
  /** Why its last ask was not answered, or what it waits for instead of the lock. */
  #failure: unknown;
  /** The request without whose grant its first ask has no effect, until that ask is answered. */
  #after: KeyRequest | undefined;
  /** The request behind it has been reported, and that counts only behind its own answer. A backend that answers both in one tick may report that one first. */
  #onReported: (() => void) | undefined;
  /** The server took the lock away before the grant has arrived. */
  #isRevoked = false;
  /** Ends its pause. */
  #retry: Timer | undefined;
  #controller: AbortController | undefined;
  #isAborted = false;
  #held: HeldLease | undefined;
  #grantedAt = Infinity;
  #fencingToken: bigint | null = null;
  /** If there are callers that may have it after its present holder. */
  #cohort: Cohort | undefined;
  /** Those that hold by it: one, or readers. */
  readonly #holders = new Few<RequestCaller>();
  /** No holder ends before this time, on the monotonic clock. It may be too early: the end of a holder that has left still counts. */
  #firstEnd = Infinity;
  /** A lock was made of it. Before that an attempt may still fail for another key, and then no task has run. */
  #isUsed = false;

  constructor(
    oldest: RequestCaller,
    private readonly queue: RequestQueue,
    private readonly core: RequestCore,
    after?: KeyRequest,
  ) {
    this.#after = after;
    const { mode, limited, lease, minHold } = oldest.terms;
    this.#oldest = oldest;
    this.id = core.random.id();
    this.key = queue.key;
    this.mode = mode;
    this.limited = limited;
    this.lease = lease;
    this.minHold = minHold;
    this.otherKeysHeld = queue.otherKeysHeld;
  }

  // For the backend.

  get since(): number {
    return this.#oldest?.since ?? this.core.clock.now();
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
    return oldest === undefined || oldest.isLate ? 0 : Math.max(0, oldest.deadline - this.core.clock.now());
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
    if (this.#after?.isAsking) {
      void this.#after.#reported().then(() => {
        this.waits(instead);
      });
      return;
    }
    if (!this.#takesEffect()) return;
    if (instead === undefined) this.core.reachability.answered();
    if (this.#phase !== 'asking' && this.#phase !== 'queued') return;
    if (this.#phase === 'asking') this.#become('queued');
    this.#sent ||= instead === undefined;
    this.#rounds = 1;
    this.#failure = instead;
    this.queue.onQueued(instead);
  }

  lost(cause?: unknown): void {
    if (this.#phase === 'granted') this.lose('revoked', cause);
    else this.#isRevoked = true;
  }

  // While it asks.

  get isAsking(): boolean {
    return this.#phase === 'asking';
  }

  get isPausing(): boolean {
    return this.#phase === 'pausing';
  }

  /** Its ask has failed, and is sent again. */
  get isRepeating(): boolean {
    return this.#phase === 'pausing' && this.#failure !== undefined;
  }

  /** When it was last sent, on the monotonic clock. */
  get askedAt(): number {
    return this.#askedAt;
  }

  /** How often it was sent without an answer. */
  get rounds(): number {
    return this.#rounds;
  }

  /** Why its last ask was not answered, or what it waits for instead of the lock. */
  get failure(): unknown {
    return this.#failure;
  }

  /** For how many ms the backend has not answered a question about it: `Infinity` while a grant of it is being confirmed. */
  unansweredFor(now: number): number {
    const { backend } = this.core;
    if (this.#phase === 'queued') return answerOr(Infinity, () => backend.unansweredFor?.(this) ?? 0);
    return this.#phase === 'asking' ? now - this.#askedAt : 0;
  }

  /** The holder that keeps it out, as the backend last saw it for this request. */
  get heldBy(): Holding | null {
    const { backend } = this.core;
    return answerOr(null, () => backend.heldBy?.(this) ?? null);
  }

  /** Whether a grant of it serves this caller. */
  fits(caller: RequestCaller): boolean {
    const { mode, limited, lease, minHold } = caller.terms;
    return (
      mode === this.mode &&
      lease === this.lease &&
      minHold === this.minHold &&
      limited?.limit === this.limited?.limit &&
      limited?.weight === this.limited?.weight
    );
  }

  /** The request asks for this caller from now on, which it fits. */
  askFor(oldest: RequestCaller): void {
    this.#oldest = oldest;
  }

  /** Its caller waits for the answer from now on, and not since the ask. */
  onTurn(): void {
    if (this.#phase === 'asking') this.#askedAt = this.core.clock.now();
  }

  /** Sends it, the first time or again. */
  ask(): void {
    const { clock, suspension, releases } = this.core;
    const now = clock.now();
    this.#become('asking');
    this.#askedAt = now;
    this.#askedFor = this.#oldest;
    this.#suspensions = suspension.recent(now);
    this.#rounds += 1;
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
    this.#become('pausing');
    this.#rounds = rounds;
    this.#failure = failure;
    const { clock, random } = this.core;
    const ask = () => {
      this.ask();
    };
    this.#retry = clock.setTimer(ask, backOff(random, rounds - 1, RETRY), true);
  }

  /** The request serves nobody any more. Its grant, or one that may come, is released. */
  giveUp(): Promise<ReleaseOutcome> {
    const isSent = this.#sent || this.#phase !== 'pausing';
    this.#become('over');
    this.#isAborted = true;
    this.#controller?.abort();
    return this.#askedAt === -Infinity ? Promise.resolve('lost') : this.core.releases.giveUp(this, isSent);
  }

  /** In no caller's async context. */
  static readonly #send = (request: KeyRequest): void => {
    const { backend, releases } = request.core;
    const onAnswer = (answer: Grant | 'busy' | 'not-asked'): Promise<void> | undefined => {
      const after = request.#after;
      // Delivered behind the answer to the request before it, without whose grant it does not count.
      if (after?.isAsking && answer !== 'not-asked') return after.#reported().then(() => onAnswer(answer));
      request.#onAnswer(answer);
      releases.inFlight.done();
      return undefined;
    };
    const onFailure = (error: unknown): void => {
      request.#onFailure(error);
      releases.inFlight.done();
    };
    void promised(() => backend.acquire(request)).then(onAnswer, onFailure);
  };

  #onAnswer(answer: Grant | 'busy' | 'not-asked'): void {
    const { clock, suspension, reachability } = this.core;
    if (this.#phase === 'over') {
      // Its id is dead. A grant that comes all the same is released whenever it comes.
      if (typeof answer === 'object') void this.core.releases.giveUp(this, true);
      return;
    }
    if (answer === 'not-asked') {
      this.#endUnasked(false);
      return;
    }
    if (!this.#takesEffect()) return;
    const now = clock.now();
    if (answer === 'busy') {
      reachability.answered();
      const askedFor = this.#askedFor;
      this.#become('over');
      this.queue.onBusy(this, askedFor);
    } else if (
      !this.#isRevoked &&
      now < answer.validUntil &&
      // An answer is as fresh as the clock says only if the machine was not suspended.
      suspension.observeGrant(now) === this.#suspensions
    ) {
      reachability.answered();
      this.#begin(answer, now);
      this.queue.onGranted(this, now);
    } else this.queue.onGrantTooLate(this);
  }

  #onFailure(error: unknown): void {
    if (this.#phase === 'over') return;
    this.#sent ||= wasSent(error);
    const isEarly = this.#after !== undefined;
    const askedFor = this.#askedFor;
    // Nothing of it is in flight any more, so what is left to release depends on what was sent.
    this.#become('pausing');
    if (isEarly) {
      // Usually the request before it was in the same call and has failed as well. That one is repeated, and this one must not hold meanwhile.
      this.#endUnasked(true);
    } else if (isRetryable(error)) {
      this.core.reachability.failed(error);
      this.pause(this.#rounds, error);
      this.queue.onUnanswered();
    } else {
      // The answer was for the caller that it asked for. The others may get another one.
      this.queue.onFailed(this, error, askedFor);
    }
  }

  /**
   * Whether an answer to its ask counts: whether this process holds by the request before it, if there is one. Otherwise it is given up with whatever
   * it was granted, because a caller never holds a key while it waits for one before it.
   */
  #takesEffect(): boolean {
    const after = this.#after;
    this.#after = undefined;
    if (after === undefined || after.#phase === 'granted' || this.#phase === 'over') return true;
    this.#endUnasked(true);
    return false;
  }

  /** Resolves when its ask is answered, or when it is queued. */
  #reported(): Promise<void> {
    const before = this.#onReported;
    return new Promise((resolve) => {
      this.#onReported = () => {
        before?.();
        resolve();
      };
    });
  }

  /** Ends it without an answer of its own. `mayBeLeft`: the backend may have executed its ask. */
  #endUnasked(mayBeLeft: boolean): void {
    const askedFor = this.#askedFor;
    if (mayBeLeft) void this.giveUp();
    else this.#become('over');
    this.queue.onNotAsked(askedFor);
  }

  #become(phase: 'pausing' | 'asking' | 'queued' | 'granted' | 'over'): void {
    const { clock, suspension } = this.core;
    if (this.#retry !== undefined) {
      clock.clearTimer(this.#retry);
      this.#retry = undefined;
    }
    if (this.#phase === 'queued') suspension.queued(-1);
    if (phase === 'queued') suspension.queued(1);
    if (phase === 'granted' || phase === 'over') {
      // Its renewals and its release would keep what is around them.
      this.#oldest = undefined;
      this.#askedFor = undefined;
      this.#after = undefined;
    }
    this.#phase = phase;
    if (phase === 'asking') return;
    this.#onReported?.();
    this.#onReported = undefined;
  }

  // From its grant on.

  #begin(grant: Grant, now: number): void {
    const { random } = this.core;
    this.#become('granted');
    this.#held = new HeldLease(grant, this.#suspensions, true);
    this.#grantedAt = now;
    this.#fencingToken = grant.fencingToken;
    if (!grant.followers) return;
    // Limited grants are handed on side by side. Where the same callers come again and again, some would each time be the last of a grant, and
    // have half as many turns as the others. So a grant ends one caller earlier, or not, at random.
    const skipped = this.limited && random.fraction() < 0.5 ? 1 : 0;
    this.#cohort = new Cohort(grant, now, this.queue.arrivals - skipped);
  }

  /** The lease, from the grant on. */
  get held(): HeldLease {
    if (this.#held === undefined) throw new Error('The request was not granted.');
    return this.#held;
  }

  /** The token of its latest holder. */
  get fencingToken(): bigint | null {
    return this.#cohort === undefined ? this.#fencingToken : this.#cohort.fencingToken;
  }

  /** Its present holder is the first one, which the backend knows by its id. */
  get isFirst(): boolean {
    return this.#holders.size === 0 && this.#cohort?.isHandedOff !== true;
  }

  /** Until when the key stays retained after a release (`minHold`), on the monotonic clock; 0 for not at all, as before it is used. */
  get keepUntil(): number {
    return this.minHold === 0 || !this.#isUsed ? 0 : this.#grantedAt + this.minHold;
  }

  /** Those that hold by it, as they are now. */
  get holders(): readonly RequestCaller[] {
    return this.#holders.values();
  }

  /** The one that holds by it, or the first of several. */
  get firstHolder(): RequestCaller | undefined {
    return this.#holders.first;
  }

  /** How many hold by it. */
  get holderCount(): number {
    return this.#holders.size;
  }

  /** When something is to be done about it: a renewal is due, or it or a holder ends. On the monotonic clock. */
  get nextWake(): number {
    const { renewAt, validUntil } = this.held;
    return Math.min(renewAt, validUntil, this.#firstEnd);
  }

  /** Whether what it was granted is surely ours, by the clock. */
  isValid(now: number): boolean {
    return this.#phase === 'granted' && now < this.held.validUntil;
  }

  /** Whether the machine was not suspended since the last acknowledged command was sent. */
  isVerified(): boolean {
    return this.held.isVerified(this.core.suspension.observe());
  }

  /** Whether this caller may hold by it after its present holder, at the end of which that is asked: the next of a cohort. */
  mayServe(caller: RequestCaller, now: number): boolean {
    return (
      this.#cohort !== undefined &&
      this.#cohort.mayInclude(caller.arrival, now) &&
      this.mode !== 'shared' &&
      this.minHold === 0 &&
      now < this.held.validUntil &&
      this.fits(caller) &&
      // A look that costs less than `isVerified()`.
      this.held.isVerified(this.core.suspension.observeGrant(now))
    );
  }

  /** The next caller of the cohort holds by it, with the next token. */
  handOff(): void {
    this.#cohort?.handOff();
  }

  /** The grant is not handed off any more. */
  endCohort(): void {
    this.#cohort?.close();
  }

  enter(holder: RequestCaller): void {
    this.#holders.add(holder);
  }

  /** One of its holders ends at this time, on the monotonic clock. */
  endsAt(time: number): void {
    this.#firstEnd = Math.min(this.#firstEnd, time);
  }

  /** A lock was made of it. */
  use(): void {
    this.#isUsed = true;
  }

  /** From now on it is renewed to `lease` ms. Beside other holders it is never shortened. */
  changeLease(lease: number): void {
    const { held } = this;
    if (lease === held.length) return;
    this.endCohort();
    held.change(this.#holders.size > 1 ? Math.max(lease, held.length) : lease);
  }

  /**
   * Renews it now. Resolves to `unknown` when the backend does not answer. A renewal that is answered after the deadline finds the loss.
   *
   * @param suspensions how many suspensions of the machine are known
   */
  async renewNow(suspensions: number): Promise<RenewOutcome> {
    const { backend, clock, reachability } = this.core;
    const { held } = this;
    const now = clock.now();
    this.expire(now);
    if (!this.isValid(now)) return 'lost';
    const number = held.beginRenewal(now);
    let outcome: RenewOutcome;
    try {
      outcome = await backend.renew(this, held.length);
    } catch (error) {
      reachability.failed(error);
      outcome = 'unknown';
    }
    if (outcome === 'lost') this.lose('revoked');
    else this.expire(clock.now());
    // Released or lost by now, it concerns nobody.
    if (this.#phase !== 'granted') return outcome;
    if (outcome !== 'unknown' && outcome !== 'lost') {
      held.acknowledged(number, outcome.validUntil, suspensions);
      reachability.answered();
    }
    for (const holder of this.holders) holder.renewed(outcome !== 'unknown');
    return outcome;
  }

  /** Loses the lease, if it is over by the clock. */
  expire(now: number): void {
    if (this.#phase === 'granted' && now >= this.held.validUntil) this.lose('expired');
  }

  /** Loses what is over by the clock: the lease, or a holder. */
  expireHolders(now: number): void {
    this.expire(now);
    if (now < this.#firstEnd) return;
    this.#firstEnd = Infinity;
    for (const holder of this.holders) holder.expire(now);
    for (const { endsAt } of this.holders) this.endsAt(endsAt);
  }

  /** Ends it as lost, unless it has ended already. */
  lose(reason: LossReason, cause?: unknown): void {
    if (this.#phase !== 'granted') return;
    this.#become('over');
    const { holders } = this;
    for (const holder of holders) this.#holders.delete(holder);
    // Each has lost it and the backend has it back before anybody is told: a listener may release another reader, or ask for the key again.
    for (const holder of holders) holder.lose(reason, cause);
    this.queue.onLost(this);
    for (const holder of holders) holder.onLost();
  }

  /** One of its holders has released it. Resolves to what `answer` makes of the outcome, in the tick in which that comes. */
  release<R>(holder: RequestCaller, intent: ReleaseIntent, now: number, answer: OnReleased<R>): Promise<R> {
    this.#holders.delete(holder);
    if (this.#holders.size === 0) return this.queue.onReleased(this, intent, now, answer);
    return Promise.resolve(answer('released'));
  }

  /** One of its holders has lost what the others keep. Its task may still run, so nobody enters by this grant any more. */
  abandon(holder: RequestCaller, now: number): void {
    if (this.#phase !== 'granted') return;
    this.endCohort();
    void this.release(holder, { keepUntil: this.keepUntil, failed: true }, now, asItIs);
  }

  /** The request is given back, or lost already: later reports of it concern nobody. */
  retire(): void {
    this.#become('over');
  }

  /** Sends the release of what it was granted, after it has {@link retire}d. */
  giveBack<R>(intent: ReleaseIntent, now: number, answer: OnReleased<R>): Promise<R> {
    const lasting = Math.max(this.held.longest, intent.keepUntil - now);
    return this.core.releases.send(this, intent, lasting, answer, now);
  }
}
