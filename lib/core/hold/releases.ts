import type { Clock, Timer } from '../../api/clock.js';
import type { AcquireRequest, LockBackend, ReleaseOutcome } from '../../api/lock-provider.js';
import type { Random } from '../../api/random.js';
import type { Reachability } from '../events/reachability.js';
import { detached } from '../toolkit/detached.js';
import { promised } from '../toolkit/promised.js';
import { backOff, withTimeout } from '../toolkit/timing.js';
import { WaitGroup } from '../toolkit/wait-group.js';

const RETRY = { first: 100, most: 1_000 };
/** How long a server may keep a request in its queue that does not ask any more, in ms. */
const QUEUED_FOR = 10_000;
// How many releases outlast an outage. Beyond that they end with their time, so that an outage of an hour costs a bounded amount.
const MOST_IN_OUTAGE = 10_000;

/** How a lock is released. */
export interface ReleaseIntent {
  /** Until when its key is retained, on the monotonic clock; 0, or a time that has passed, frees it. */
  readonly keepUntil: number;
  /** The task failed or the lock was lost. */
  readonly failed: boolean;
}

const GIVEN_UP: ReleaseIntent = { keepUntil: 0, failed: true };

/** Maps the outcome of a release in the tick in which that comes: a promise more would be a tick more. */
export type OnReleased<R> = (outcome: ReleaseOutcome) => R;

/** Makes nothing of it. */
export const asItIs = <T>(outcome: T): T => outcome;

/** A release that was not answered. */
interface PendingRelease {
  readonly request: AcquireRequest;
  readonly intent: ReleaseIntent;
  /** For how many ms there may be something to release, counted from when the server has executed all that was sent before it. */
  readonly lasting: number;
  /** When that time is over, on the monotonic clock, if the server has executed everything by now. */
  until: number;
  /** The release is in flight again. */
  isSent: boolean;
}

/**
 * Sends releases, and sends those again that were not answered until there is nothing left to release.
 *
 * The time of a release begins again when the backend answers again: what was sent before an outage may be executed at its end, however
 * long that lasted (`test/redis/queue-model.ts` finds the way).
 *
 * One timer for all: an outage leaves as many of them as there were callers, and a loop for each took a third of a core.
 */
export class Releases {
  /** Asks and releases that are in flight, and releases that are pending: {@link close} waits for them. */
  readonly inFlight = new WaitGroup();
  readonly #pending = new Set<PendingRelease>();
  #timer: Timer | undefined;
  /** How many retries there were since the list was empty. */
  #rounds = 0;
  #closed = false;

  constructor(
    private readonly backend: Pick<LockBackend, 'release'>,
    private readonly clock: Clock,
    private readonly random: Random,
    private readonly reachability: Reachability,
  ) {}

  /**
   * Releases a lock, and resolves to what `answer` makes of the outcome. A release that was not answered, whose outcome is `unknown`, is sent
   * again in the background until it was answered or `lasting` ms have passed, after which nothing is left to release.
   */
  send<R>(
    request: AcquireRequest,
    intent: ReleaseIntent,
    lasting: number,
    answer: OnReleased<R>,
    now = this.clock.now(),
  ): Promise<R> {
    const until = now + lasting;
    return this.#send(request, intent, (outcome) => {
      if (outcome === 'unknown') this.#keep({ request, intent, lasting, until, isSent: false });
      return answer(outcome);
    });
  }

  /**
   * Releases a request that serves nobody any more, and what it was granted or may have been.
   *
   * @param isSent something of it may have reached the server. Otherwise it is released only for what the backend knows of it here
   */
  giveUp(request: AcquireRequest, isSent: boolean): Promise<ReleaseOutcome> {
    const lasting = isSent ? Math.max(request.lease, request.minHold, QUEUED_FOR) : 0;
    return this.send(request, GIVEN_UP, lasting, asItIs);
  }

  /** The backend answers again: what is pending is sent now. */
  recovered(): void {
    const now = this.clock.now();
    for (const release of this.#pending) release.until = now + release.lasting;
    this.#retryAll();
  }

  /** Waits up to `timeout` ms for what is in flight, then gives up on it: the leases end by themselves. */
  async close(timeout: number): Promise<void> {
    if (!this.inFlight.isIdle) await withTimeout(this.clock, timeout, this.inFlight.idle());
    this.#closed = true;
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#pending.clear();
  }

  #send<R>(request: AcquireRequest, { keepUntil, failed }: ReleaseIntent, answer: OnReleased<R>): Promise<R> {
    this.inFlight.add();
    const keepFor = keepUntil === 0 ? 0 : Math.max(0, keepUntil - this.clock.now());
    const onOutcome = (outcome: ReleaseOutcome): R => {
      try {
        return answer(outcome);
      } finally {
        this.inFlight.done();
      }
    };
    // A backend that fails has not answered.
    const onFailure = (cause: unknown): R => {
      this.reachability.failed(cause);
      return onOutcome('unknown');
    };
    return promised(() => this.backend.release(request, { keepFor, failed })).then(onOutcome, onFailure);
  }

  #keep(release: PendingRelease): void {
    if (this.#closed || this.#isOver(release)) return;
    this.inFlight.add();
    this.#pending.add(release);
    // In no caller's context: the timer serves all, and would keep the context of the caller that failed first.
    detached(this.#retryLater);
  }

  #forget(release: PendingRelease): void {
    if (this.#pending.delete(release)) this.inFlight.done();
  }

  #isOver({ until, lasting }: PendingRelease): boolean {
    if (this.clock.now() < until) return false;
    return lasting <= 0 || this.reachability.isUp || this.#pending.size > MOST_IN_OUTAGE;
  }

  #retryAll(): void {
    for (const release of this.#pending) {
      if (release.isSent) continue;
      if (this.#isOver(release)) this.#forget(release);
      else this.#retry(release);
    }
  }

  #retry(release: PendingRelease): void {
    release.isSent = true;
    void this.#send(release.request, release.intent, (outcome) => {
      release.isSent = false;
      if (outcome !== 'unknown' || this.#isOver(release)) this.#forget(release);
    });
  }

  readonly #retryLater = (): void => {
    if (this.#timer !== undefined || this.#closed) return;
    if (this.#pending.size === 0) {
      this.#rounds = 0;
      return;
    }
    const retry = () => {
      this.#timer = undefined;
      this.#retryAll();
      this.#retryLater();
    };
    this.#timer = this.clock.setTimer(retry, backOff(this.random, this.#rounds, RETRY));
    this.#rounds += 1;
  };
}
