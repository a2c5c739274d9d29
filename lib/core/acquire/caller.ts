import type { Timer } from '../../api/clock.js';
import { LockBusyError, LockError, LockUnavailableError } from '../../api/errors.js';
import { nameOf } from '../events/subject.js';
import type { HeldGrant } from '../hold/held-grant.js';
import type { Hold } from '../hold/hold.js';
import type { ProviderCore } from '../provider-core.js';
import { forgetAbort, leaveOnAbort } from '../toolkit/abort-listeners.js';
import type { AcquireTerms } from './acquire-terms.js';
import { holderIn, NESTED_OR_QUEUED } from './re-entry.js';

// A longer timer fires immediately.
const LONGEST_TIMER = 2 ** 31 - 1;

/** Where callers queue. */
export interface CallerQueue {
  /** The caller leaves, and gets `error`. */
  leave(caller: Caller, error: unknown): void;
  /** The time has come at which the caller looks again. */
  onTime(caller: Caller): void;
}

/**
 * A caller in the queue of a key: a deadline, a signal and a place. The backend never hears of it.
 *
 * It is late when its deadline has passed, as it has from the beginning with `wait: 0`. Then it waits only for the answer that is in
 * flight.
 */
export abstract class Caller {
  next: Caller | undefined;
  previous: Caller | undefined;
  /** Its number among all that came to the queue. */
  arrival = 0;
  /** It is in the queue. */
  isQueued = false;
  /** When it stops waiting, on the monotonic clock. */
  deadline: number;
  isLate: boolean;
  #timer: Timer | undefined;

  constructor(
    readonly terms: AcquireTerms,
    protected readonly queue: CallerQueue,
    protected readonly provider: ProviderCore,
  ) {
    this.deadline = terms.deadline;
    this.isLate = terms.deadline <= terms.startedAt;
  }

  /** Its request serves nobody else, and nobody else's serves it. */
  abstract readonly isAlone: boolean;

  /** It holds by the grant from `now` on. */
  abstract enter(grant: HeldGrant, now: number): void;

  /** The key is busy. `isHeldHere`: this process holds it. */
  abstract refuseBusy(isHeldHere: boolean): void;

  /** The backend did not answer. */
  abstract refuseUnavailable(cause: unknown): void;

  /** Its request was not answered: it repeats that by itself if it {@link isAlone}, and else the queue does. */
  abstract unanswered(error: unknown): void;

  /** It gets this error. */
  abstract refuse(error: unknown): void;

  /** It waits: for others in the queue, or its request at the backend, for the lock or for what `instead` names. */
  abstract waits(instead?: LockError): void;

  /** Looks again at `time`, on the monotonic clock. */
  wakeAt(time: number): void {
    this.clearTimer();
    const { clock } = this.provider;
    const delay = Math.min(Math.max(0, Math.ceil(time - clock.now())), LONGEST_TIMER);
    // Keeps the process alive, because a caller awaits the end, also where only the lease of its own process has to end.
    this.#timer = clock.setTimer(this.#wake, delay, true);
  }

  clearTimer(): void {
    if (this.#timer === undefined) return;
    this.provider.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }

  readonly #wake = (): void => {
    this.#timer = undefined;
    this.queue.onTime(this);
  };
}

/** A caller of this application, which gets a hold. */
export class LocalCaller extends Caller {
  readonly isAlone = false;
  readonly outcome: Promise<Hold>;
  #isReported = false;
  #resolve!: (hold: Hold) => void;
  #reject!: (error: unknown) => void;

  constructor(terms: AcquireTerms, queue: CallerQueue, provider: ProviderCore) {
    super(terms, queue, provider);
    this.outcome = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    if (terms.signal) leaveOnAbort(terms.signal, this);
  }

  enter(grant: HeldGrant, now: number): void {
    if (this.terms.signal) forgetAbort(this.terms.signal, this);
    this.#resolve(this.provider.holds.begin(grant, this.terms, now));
  }

  refuseBusy(isHeldHere: boolean): void {
    const { events, clock } = this.provider;
    const { subject, startedAt, limited, around } = this.terms;
    const waited = clock.now() - startedAt;
    events.publish('busy', () => ({ ...subject, waited }));
    let advice = 'raise "wait", or handle busy with onBusy or tryAcquire().';
    if (around?.isValid())
      advice = `${holderIn(around)} holds it, in whose async context the call runs. ${NESTED_OR_QUEUED}`;
    // For a pool, whose holders never re-enter, that is no mistake.
    else if (isHeldHere && !limited) {
      advice = `this process holds it: ${advice} If the caller itself holds it, pass { within: lock }, or run what needs the lock under lock.run().`;
    }
    this.refuse(
      new LockBusyError(
        `${nameOf(subject)} was busy ${waited < 1 ? 'when asked' : `for the whole wait of ${Math.round(waited)} ms`}; ${advice}`,
        { key: subject.key, provider: subject.provider, waited },
      ),
    );
  }

  refuseUnavailable(cause: unknown): void {
    const { key, provider } = this.terms.subject;
    const message = `${nameOf(this.terms.subject)} could not be acquired: ${reasonOf(cause)}`;
    this.refuse(new LockUnavailableError(message, { key, provider, cause }));
  }

  unanswered(): void {
    // The queue repeats it.
  }

  refuse(error: unknown): void {
    if (this.terms.signal) forgetAbort(this.terms.signal, this);
    this.#reject(error);
  }

  waits(): void {
    if (this.#isReported || this.isLate) return;
    this.#isReported = true;
    this.provider.events.publish('waiting', () => this.terms.subject);
  }

  /** The application sends it away. */
  dismiss(error: Error): void {
    this.queue.leave(this, error);
  }

  /** Its signal has aborted. */
  leave(): void {
    this.queue.leave(this, this.terms.signal?.reason);
  }
}

/** A failure in its own words: a backend that refuses has answered. Only a failure without words is silence. */
function reasonOf(cause: unknown): string {
  const words = cause instanceof Error ? cause.message : '';
  if (words === '') return 'the backend did not answer; check that it is up and reachable.';
  return LockError.is(cause) ? words : `the backend failed with "${words}"; check it and its log.`;
}
