import type { Clock, Timer } from '../../api/clock.js';
import type { AcquireRequest, LockBackend, ReleaseOutcome } from '../../api/lock-provider.js';
import type { Random } from '../../api/random.js';
import type { Reachability } from '../events/reachability.js';
import { promised } from '../toolkit/promised.js';
import { backOff, withTimeout } from '../toolkit/timing.js';

const RETRY = { first: 100, most: 1_000 };
// How many releases outlast an outage. Beyond that they end with their time, so that an outage of an hour costs a bounded amount.
const MOST_IN_OUTAGE = 10_000;

/** How a lock is released. */
export interface ReleaseIntent {
  /** Until when its key is retained, on the monotonic clock; 0, or a time that has passed, frees it. */
  readonly keepUntil: number;
  /** The task failed or the lock was lost. */
  readonly failed: boolean;
}

/** A release that was sent. It is pending once a try has ended without an answer. */
interface PendingRelease {
  readonly request: AcquireRequest;
  readonly intent: ReleaseIntent;
  /** For how many ms after the server has executed what precedes it something may be left to release. */
  readonly lasting: number;
  /** When that time is over, on the monotonic clock, if the server has executed everything by now. */
  until: number;
  /** It is in flight. */
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
  #inFlight = 0;
  #onIdle: (() => void) | undefined;
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
   * Releases a lock. A release that was not answered, which resolves to `unknown`, is sent again in the background until it was answered
   * or `lasting` ms have passed, after which nothing is left to release.
   */
  send(request: AcquireRequest, intent: ReleaseIntent, lasting: number): Promise<ReleaseOutcome> {
    return this.#send({ request, intent, lasting, until: this.clock.now() + lasting, isSent: true });
  }

  /** The backend answers again: what is pending is sent now. */
  recovered(): void {
    const now = this.clock.now();
    for (const release of this.#pending) release.until = now + release.lasting;
    this.#retryAll();
  }

  /** Something is in flight that may leave a release behind: {@link close} waits for its {@link end}. */
  begin(): void {
    this.#inFlight += 1;
  }

  end(): void {
    this.#inFlight -= 1;
    if (this.#inFlight === 0) this.#onIdle?.();
  }

  /** Counts `work`, which must not reject, among what {@link close} waits for. */
  track(work: Promise<void>): void {
    this.begin();
    void work.then(() => {
      this.end();
    });
  }

  /** Waits up to `timeout` ms for what is in flight, then gives up on it: the leases end by themselves. */
  async close(timeout: number): Promise<void> {
    if (this.#inFlight > 0) {
      const idle = new Promise<void>((resolve) => (this.#onIdle = resolve));
      await withTimeout(this.clock, timeout, idle);
    }
    this.#closed = true;
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#pending.clear();
  }

  #send(release: PendingRelease): Promise<ReleaseOutcome> {
    this.begin();
    release.isSent = true;
    const { keepUntil, failed } = release.intent;
    const keepFor = keepUntil === 0 ? 0 : Math.max(0, keepUntil - this.clock.now());
    const onOutcome = (outcome: ReleaseOutcome): ReleaseOutcome => {
      release.isSent = false;
      if (outcome === 'unknown' && !this.#closed && !this.#isOver(release)) this.#keep(release);
      else if (this.#pending.size > 0) this.#forget(release);
      this.end();
      return outcome;
    };
    // A backend that fails has not answered.
    const onFailure = (cause: unknown): ReleaseOutcome => {
      this.reachability.failed(cause);
      return onOutcome('unknown');
    };
    return promised(() => this.backend.release(release.request, { keepFor, failed })).then(onOutcome, onFailure);
  }

  #retryAll(): void {
    for (const release of this.#pending) {
      if (release.isSent) continue;
      if (this.#isOver(release)) this.#forget(release);
      else void this.#send(release);
    }
  }

  #isOver({ until, lasting }: PendingRelease): boolean {
    if (this.clock.now() < until) return false;
    return lasting <= 0 || this.reachability.isUp || this.#pending.size > MOST_IN_OUTAGE;
  }

  #keep(release: PendingRelease): void {
    if (this.#pending.has(release)) return;
    this.begin();
    this.#pending.add(release);
    this.#retryLater();
  }

  #forget(release: PendingRelease): void {
    if (this.#pending.delete(release)) this.end();
  }

  #retryLater(): void {
    if (this.#timer !== undefined || this.#closed) return;
    if (this.#pending.size === 0) {
      this.#rounds = 0;
      return;
    }
    this.#timer = this.clock.setTimer(
      () => {
        this.#timer = undefined;
        this.#retryAll();
        this.#retryLater();
      },
      backOff(this.random, this.#rounds, RETRY),
    );
    this.#rounds += 1;
  }
}
