import type { Clock, Timer } from '../../api/clock.js';
import type { LockError, LossReason } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { AcquireRequest } from '../../api/lock-provider.js';
import type { KnownHolding } from './holder-report.js';

/** The wishes of a caller for a key: a request with equal terms serves it. */
export type Terms = Pick<AcquireRequest, 'mode' | 'limited' | 'lease' | 'minHold'>;

/** Whether a caller with these terms is busy if a request with the others was, a moment ago. */
export function wantsNoLess(
  { mode, limited }: Pick<Terms, 'mode' | 'limited'>,
  others: Pick<Terms, 'mode' | 'limited'>,
): boolean {
  if (limited && others.limited)
    return limited.weight >= others.limited.weight && limited.limit <= others.limited.limit;
  return mode === 'exclusive' || mode === others.mode;
}

/** Where callers wait. An interface only because queues import their callers. */
export interface CallerQueue {
  readonly key: string;
  /** How many wait. */
  readonly size: number;
  /** No more callers of this application may wait. */
  readonly isFull: boolean;
  /** When a caller was last let in, on the monotonic clock; `-Infinity` if none was. */
  readonly enteredAt: number;
  /** The holder that keeps the caller out, if it is known. */
  holdingBeside(caller: Caller): KnownHolding | null;
  /** The caller comes. */
  add(caller: Caller): void;
  /** The caller comes before its turn, and is asked for only if the request `after` is granted. */
  addBehind(after: AcquireRequest, caller: Caller): void;
  /** The caller has its turn. */
  onTurn(caller: Caller): void;
  /** The caller leaves, and gets `error`. */
  leave(caller: Caller, error: unknown): void;
  /** The time has come at which the caller looks again. */
  onTime(caller: Caller): void;
}

/**
 * One key of one owner: waiting in the queue of the key, then holding by a request that was granted, then over. The backend never hears of it.
 *
 * It is late when its deadline has passed, as it has from the beginning with `wait: 0`. Then it waits only for the answer that is in
 * flight.
 *
 * Abstract, and with the class of requests as a parameter, only because requests import their callers.
 */
export abstract class Caller<Request = unknown> {
  // Its place in the queue. Only the `CallerList` writes these, but for whether it is late from the beginning.
  next: this | undefined;
  previous: this | undefined;
  /** Its number among all that came to the queue. */
  arrival = 0;
  isQueued = false;
  isLate: boolean;

  #timer: Timer | undefined;

  constructor(
    readonly terms: Terms,
    /** When it came, on the monotonic clock. */
    readonly startedAt: number,
    /** When it came to the queue of this key: later than that for the second of several keys. */
    readonly since: number,
    /** When it stops waiting, on the monotonic clock. */
    readonly deadline: number,
    protected readonly queue: CallerQueue,
    private readonly clock: Clock,
  ) {
    this.isLate = deadline <= startedAt;
  }

  /** The subject of events and messages about it. */
  abstract readonly subject: LockEvent;

  /** The decorated method that calls, or `null`. */
  abstract readonly method: string | null;

  /** The caller runs under a lock that is held. */
  abstract readonly isUnderLock: boolean;

  /** When it was granted, on the monotonic clock. */
  abstract readonly grantedAt: number;

  abstract readonly fencingToken: bigint | null;

  /** How many locks of its owner are open on it: the first and those that re-entered. */
  abstract readonly entries: number;

  /** When it ends as a holder, whatever the lease; `Infinity` unless it has a `maxHold`. On the monotonic clock. */
  abstract readonly endsAt: number;

  /** The caller waits: for others in the queue, or its request at the backend, for the lock or for what `instead` names. */
  abstract waits(instead?: LockError): void;

  /** The key is busy, because of this holder where one is known. */
  abstract refuseBusy(holding: KnownHolding | null): void;

  /** The backend did not answer. */
  abstract refuseUnavailable(cause: unknown): void;

  /** The caller gets this error. */
  abstract refuse(error: unknown): void;

  /** The application sends it away. */
  abstract dismiss(error: Error): void;

  /** The caller holds by this request from `now` on. */
  abstract enter(request: Request, now: number): void;

  /** Whether it is surely ours by the clock, without the look at a suspension: for the core, which has just asked. */
  abstract isValid(now: number): boolean;

  /** Milliseconds until it ends; 0 when it is not held. */
  abstract remaining(now: number): number;

  /** A renewal of what it holds was answered, or was not. */
  abstract renewed(isAnswered: boolean): void;

  /** Loses the hold, if it is over by the clock. */
  abstract expire(now: number): void;

  /** The hold is lost. Nobody is told before {@link onLost}. */
  abstract lose(reason: LossReason, cause?: unknown): void;

  /** Listeners are told that the hold was lost. */
  abstract onLost(): void;

  /** Looks again at `time`, on the monotonic clock. */
  wakeAt(time: number): void {
    this.clearTimer();
    const delay = Math.max(0, Math.ceil(time - this.clock.now()));
    const wake = (): void => {
      this.#timer = undefined;
      this.queue.onTime(this);
    };
    // Keeps the process alive, because a caller awaits the end, also where only the lease of its own process has to end.
    this.#timer = this.clock.setTimer(wake, delay, true);
  }

  clearTimer(): void {
    if (this.#timer === undefined) return;
    this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }
}
