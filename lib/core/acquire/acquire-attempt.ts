import type { Timer } from '../../api/clock.js';
import { LockError, LockBusyError, LockUnavailableError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { AcquireRequest, Grant } from '../../api/lock-provider.js';
import { nameOf } from '../events/subject.js';
import type { Hold } from '../hold/hold.js';
import type { ProviderCore } from '../provider-core.js';
import type { HolderTable } from '../toolkit/holder-table.js';
import { backOff, withTimeout } from '../toolkit/timing.js';
import { forgetAbort, leaveOnAbort } from './abort-listeners.js';
import type { AcquireTerms } from './acquire-terms.js';
import { isRetryable, wasSent } from '../toolkit/retryable.js';

// How long an ask may stay without any answer before its outcome counts as unknown, however short the caller's wait:
// with `wait: 0` a backend that needs 20 ms to answer is not down.
const ANSWER_TIMEOUT = 1_000;
const RETRY = { first: 50, most: 1_000 };

/** What an ask gave, as a value: a failure is an outcome too, and asked again. */
type Outcome = Grant | 'busy' | Unanswered;

class Unanswered {
  constructor(readonly cause: unknown) {}
}

/** A caller was sent away, and gets `error`. */
interface Cancellation {
  readonly error: unknown;
}

/** What the backend is asked, under one holder id. */
class Request implements AcquireRequest {
  readonly key: string;
  readonly mode: AcquireRequest['mode'];
  readonly limited: AcquireRequest['limited'];
  readonly lease: number;
  readonly renew: boolean;
  readonly minHold: number;
  readonly depth: number;
  /** How many suspensions of the machine were known when it was last sent. */
  suspensions = 0;
  /** It may have reached the server, so something of it may be left there. */
  mayBeKnown = false;
  /** The server took the lock away before its grant was used. */
  isRevoked = false;

  constructor(
    readonly holder: string,
    private readonly attempt: AcquireAttempt,
  ) {
    const { subject, lease, depth, limited } = attempt.terms;
    this.key = subject.key;
    this.mode = subject.mode;
    this.limited = limited;
    this.lease = lease.lease;
    this.renew = lease.renew;
    this.minHold = lease.minHold;
    this.depth = depth;
  }

  get wait(): number {
    return this.attempt.wait;
  }

  get signal(): AbortSignal {
    return this.attempt.signal;
  }
}

/**
 * One attempt of one caller to acquire one key, from its first ask to its grant or its end.
 *
 * It asks, and asks again while the outcome is unknown. It leaves when its deadline passes, its signal aborts or the application
 * sends it away. A holder id is dead as soon as a release was sent for it; a grant that comes later is released. If a grant was over
 * before it was received, nothing was lost, since nobody had the lock yet: the attempt goes on under a new id.
 */
export class AcquireAttempt {
  #request: Request;
  /** Since when an ask is in flight that the backend has neither answered nor acknowledged by queueing the caller. */
  #unansweredSince: number | undefined;
  #isQueued = false;
  #hasLeft = false;
  #isOver = false;
  #cancellation: Cancellation | undefined;
  #controller: AbortController | undefined;
  // One callback at a time rather than Promise.race with a promise of the end: each race would leave a reaction on that
  // promise, and a caller may wait for days for a backend that is down.
  #onLeft: (() => void) | undefined;
  #timer: Timer | undefined;
  #wakesAt = Infinity;

  /**
   * @param running the attempts by holder id: this one is among them from here on until it is over
   * @param ended called once, when it is
   */
  constructor(
    private readonly provider: ProviderCore,
    readonly terms: AcquireTerms,
    private readonly running: HolderTable<AcquireAttempt>,
    private readonly ended: (subject: LockEvent) => void,
  ) {
    this.#request = new Request(provider.random.id(), this);
    running.set(this.#request.holder, this);
  }

  get wait(): number {
    return Math.max(0, this.terms.deadline - this.provider.clock.now());
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#hasLeft) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  async run(): Promise<Hold> {
    const { signal } = this.terms;
    const { clock, suspension, locks } = this.provider;
    if (signal) leaveOnAbort(signal, this);
    try {
      for (let round = 0; ; round += 1) {
        const now = clock.now();
        this.#unansweredSince = now;
        this.#request.suspensions = suspension.recent(now);
        const answer = locks.acquire(this.#request);
        this.#checkDeadline();
        const outcome = this.#hasLeft ? undefined : await this.#unlessInterrupted(answer);
        // Looked at once more: the caller may have left in the same tick.
        if (outcome === undefined || this.#hasLeft) return await this.#leave(answer);
        this.#unansweredSince = undefined;
        const hold = this.#settle(outcome);
        if (hold) return hold;
        if (!(outcome instanceof Unanswered)) this.#replaceRequest();
        // The timeout of that ask is over, and maybe the wait with it.
        this.#checkDeadline();
        if (!(await this.#pause(round))) {
          return await this.#leave(Promise.resolve(outcome instanceof Unanswered ? outcome : 'busy'));
        }
      }
    } finally {
      this.#end();
    }
  }

  /**
   * The backend has queued it, so from now on the deadline counts as it is.
   *
   * @param otherLimit that of a holder, if it is another one
   */
  onQueued(otherLimit: number | undefined): void {
    if (this.#isOver) return;
    this.#reportLimit(otherLimit);
    this.#unansweredSince = undefined;
    this.#request.mayBeKnown = true;
    this.#checkDeadline();
    if (this.#isQueued) return;
    this.#isQueued = true;
    this.provider.suspension.queued(1);
    this.provider.events.publish('waiting', () => this.terms.subject);
  }

  /** The server has taken away what it granted. */
  onRevoked(): void {
    this.#request.isRevoked = true;
  }

  /** Ends the wait with `error`. */
  dismiss(error: Error): void {
    this.#cancellation ??= { error };
    this.leave();
  }

  /** Ends the wait; after the deadline, also the wait for the last answer. */
  leave(): void {
    if (this.#isOver) return;
    this.#hasLeft = true;
    this.#stopTimer();
    this.#onLeft?.();
  }

  /** Turns an outcome into a hold; undefined when there was no answer, or a grant that is over. Throws what ends the attempt. */
  #settle(outcome: Outcome): Hold | undefined {
    const { provider, terms } = this;
    const { key, holder, suspensions, isRevoked } = this.#request;
    if (outcome === 'busy') {
      provider.answered(key);
      throw this.#busy();
    }
    if (outcome instanceof Unanswered) {
      this.#request.mayBeKnown ||= wasSent(outcome.cause);
      if (!isRetryable(outcome.cause)) {
        this.#abandon();
        throw outcome.cause;
      }
      provider.failed(outcome.cause);
      return undefined;
    }
    const now = provider.clock.now();
    // An answer is as fresh as the clock says only if the machine was not suspended.
    const isFresh = now < outcome.validUntil && provider.suspension.observeGrant(now) === suspensions;
    if (isRevoked || !isFresh) {
      this.#abandon(outcome);
      return undefined;
    }
    this.#isOver = true;
    this.running.delete(holder);
    provider.answered(key);
    this.#reportLimit(outcome.otherLimit);
    return provider.holds.begin(terms, outcome, suspensions, now);
  }

  #reportLimit(other: number | undefined): void {
    const { subject, limited } = this.terms;
    if (limited && other !== undefined) this.provider.differingLimits.report(subject, limited.limit, other);
  }

  #replaceRequest(): void {
    this.running.delete(this.#request.holder);
    this.#request = new Request(this.provider.random.id(), this);
    this.running.set(this.#request.holder, this);
  }

  /** @param answer to the ask in flight, or what the last one gave */
  async #leave(answer: Promise<Outcome>): Promise<Hold> {
    const { clock, releases } = this.provider;
    const pending = answer.catch((error: unknown) => new Unanswered(error));
    this.#controller?.abort();
    // A backend that has queued the caller answers an abort immediately. The timeout is for an ask that was never answered.
    const last = withTimeout(clock, ANSWER_TIMEOUT, pending).then((outcome) => outcome ?? new Unanswered(undefined));
    // Only a caller whose time is up waits for it: a grant that crosses the deadline is the caller's.
    const outcome = this.#cancelled() ? undefined : await this.#unlessInterrupted(last);
    const cancelled = this.#cancelled();
    if (outcome === undefined || cancelled) {
      releases.track(this.#cleanUp(last, pending));
      throw cancelled?.error;
    }
    const hold = this.#settle(outcome);
    if (hold) return hold;
    if (!(outcome instanceof Unanswered)) throw this.#busy();
    releases.track(this.#cleanUp(last, pending));
    throw this.#unavailable(outcome.cause);
  }

  async #cleanUp(last: Promise<Outcome>, pending: Promise<Outcome>): Promise<void> {
    const outcome = await last;
    if (outcome instanceof Unanswered) {
      this.#request.mayBeKnown ||= wasSent(outcome.cause);
      this.#abandon();
    }
    // The id is dead from here on. A grant that comes all the same is released whenever it comes.
    const late = await pending;
    if (late !== 'busy' && !(late instanceof Unanswered)) this.#abandon(late);
  }

  /** Releases what it was granted, or may have been. */
  #abandon(grant?: Grant): void {
    const { clock, releases } = this.provider;
    // An ask may be executed as late as its answer was due; then it holds for a lease. One that was never sent is released only for
    // the local queue.
    const { lease, minHold, mayBeKnown } = this.#request;
    const isLeft = mayBeKnown || grant !== undefined;
    const until = isLeft ? clock.now() + Math.max(lease, minHold) : -Infinity;
    void releases.send(grant ?? this.#request, { keepUntil: 0, failed: true }, until);
  }

  /** What `work` gives, with a failure as a value; undefined if the caller leaves first, or is sent away after its deadline. */
  #unlessInterrupted<T>(work: Promise<T>): Promise<T | Unanswered | undefined> {
    return new Promise((resolve) => {
      this.#onLeft = () => {
        resolve(undefined);
      };
      work.then(resolve, (error: unknown) => {
        resolve(new Unanswered(error));
      });
    });
  }

  /** Answers false if the caller has left. */
  async #pause(round: number): Promise<boolean> {
    if (this.#hasLeft) return false;
    const { pauses, random } = this.provider;
    const pause = pauses.begin(this.#request.key, this.terms.startedAt, backOff(random, round, RETRY));
    await this.#unlessInterrupted(pause.over);
    pause.end();
    return !this.#hasLeft;
  }

  /** Leaves if the wait is over, and otherwise looks again when it will be. Called whenever the deadline may have moved. */
  #checkDeadline(): void {
    if (this.#hasLeft || this.#isOver) return;
    const { clock } = this.provider;
    const since = this.#unansweredSince;
    const { deadline: end } = this.terms;
    const deadline = since === undefined ? end : Math.max(end, since + ANSWER_TIMEOUT);
    const remaining = deadline - clock.now();
    if (this.#timer !== undefined && deadline === this.#wakesAt && remaining > 0) return;
    this.#stopTimer();
    this.#wakesAt = deadline;
    if (remaining <= 0) this.leave();
    else if (deadline !== Infinity) {
      const wake = () => {
        this.#timer = undefined;
        this.#checkDeadline();
      };
      // Keeps the process alive, because a caller awaits the end.
      this.#timer = clock.setTimer(wake, Math.ceil(remaining), true);
    }
  }

  #end(): void {
    this.#isOver = true;
    this.running.delete(this.#request.holder);
    this.#stopTimer();
    if (this.#isQueued) this.provider.suspension.queued(-1);
    const { signal, subject } = this.terms;
    if (signal) forgetAbort(signal, this);
    this.ended(subject);
  }

  #stopTimer(): void {
    if (this.#timer !== undefined) this.provider.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }

  #cancelled(): Cancellation | undefined {
    const { signal } = this.terms;
    return signal?.aborted ? { error: signal.reason } : this.#cancellation;
  }

  #busy(): LockBusyError {
    const { provider } = this;
    const { subject, startedAt, limited } = this.terms;
    const waited = provider.clock.now() - startedAt;
    provider.events.publish('busy', () => ({ ...subject, waited }));
    return new LockBusyError(
      `${nameOf(subject)} was busy ${waited < 1 ? 'when asked' : `for the whole wait of ${Math.round(waited)} ms`}` +
        // For a pool, whose holders never re-enter, that is no mistake.
        (!limited && provider.holds.hasApart(subject.key)
          ? '; this process holds it through acquire(), which no other call re-enters: run what needs the lock under withLock() or lock.run().'
          : '; raise "wait", or handle busy with onBusy or tryAcquire().'),
      { key: subject.key, provider: subject.provider, waited },
    );
  }

  #unavailable(cause: unknown): LockUnavailableError {
    const { key, provider } = this.terms.subject;
    const message = `${nameOf(this.terms.subject)} could not be acquired: ${reasonOf(cause)}`;
    return new LockUnavailableError(message, { key, provider, cause });
  }
}

/** A failure in its own words: a backend that refuses has answered. Only a failure without words is silence. */
function reasonOf(cause: unknown): string {
  const words = cause instanceof Error ? cause.message : '';
  if (words === '') return 'the backend did not answer; check that it is up and reachable.';
  return LockError.is(cause) ? words : `the backend failed with "${words}"; check it and its log.`;
}
