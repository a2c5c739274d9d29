import type { Clock, Timer } from '../../api/clock.js';
import type { AcquireRequest, LockBackend, ReleaseOutcome } from '../../api/lock-provider.js';
import type { Random } from '../../api/random.js';
import type { Reachability } from '../events/reachability.js';
import { detached } from '../toolkit/detached.js';
import { promised } from '../toolkit/promised.js';
import { backOff, withTimeout } from '../toolkit/timing.js';
import { WaitGroup } from '../toolkit/wait-group.js';

const RETRY = { first: 100, most: 1_000 };
/** How long a server may keep a request in its queue after the process stops polling, in ms. */
const MAX_QUEUED_MS = 10_000;
// How many releases are retried past their deadline while the backend is down. This bounds memory during a long outage.
const MAX_PENDING_IN_OUTAGE = 10_000;

/** How to release a lock. */
export interface ReleaseIntent {
  /** When to stop retaining the key; 0 or a time in the past frees it. */
  readonly keepUntil: number;
  /** Whether the task failed or the lock was lost. */
  readonly failed: boolean;
}

const UNUSED: ReleaseIntent = { keepUntil: 0, failed: true };

/** Maps a release's outcome. It's a callback because another promise would delay the caller by a tick. */
export type OnReleased<R> = (outcome: ReleaseOutcome) => R;

export const identity = <T>(outcome: T): T => outcome;

/** An unanswered release. */
interface PendingRelease {
  readonly request: AcquireRequest;
  readonly intent: ReleaseIntent;
  /** How long the server may keep the lock after it has executed all earlier commands, in ms. */
  readonly lasting: number;
  /** When nothing will be left to release, if the server has executed all commands by now. */
  until: number;
  /** Whether a retry is in flight. */
  isSent: boolean;
}

/**
 * Sends releases, and retries unanswered ones until nothing is left to release.
 *
 * When the backend recovers, each pending release's countdown restarts: a command sent before an outage may be executed
 * after it, however long the outage lasted.
 *
 * One timer serves all pending releases. An outage leaves one release per caller, and retrying each one separately used
 * a third of a core.
 */
export class Releases {
  /** Requests and releases in flight, and pending releases. {@link close} waits for them. */
  readonly inFlight = new WaitGroup();
  readonly #pending = new Set<PendingRelease>();
  #timer: Timer | undefined;
  /** How many retry rounds there have been since releases became pending. */
  #rounds = 0;
  #closed = false;

  constructor(
    private readonly backend: Pick<LockBackend, 'release'>,
    private readonly clock: Clock,
    private readonly random: Random,
    private readonly reachability: Reachability,
  ) {}

  /**
   * Releases a lock, and resolves to the return value of `answer`. If the backend doesn't respond, the outcome is
   * `unknown`, and the release is retried in the background until the backend responds, or until `lasting` ms have
   * passed and nothing is left to release.
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
   * Releases a request that no waiter needs anymore, including any grant that it may have received.
   *
   * @param isSent whether a command may have reached the server. If not, only the backend's local state is released,
   * with no retries
   */
  releaseUnused(request: AcquireRequest, isSent: boolean): Promise<ReleaseOutcome> {
    const lasting = isSent ? Math.max(request.lease, request.minHold, MAX_QUEUED_MS) : 0;
    return this.send(request, UNUSED, lasting, identity);
  }

  /** Retries all pending releases now, because the backend is responding again. */
  recovered(): void {
    const now = this.clock.now();
    for (const release of this.#pending) release.until = now + release.lasting;
    this.#retryAll();
  }

  /** Waits at most `timeout` ms for {@link inFlight}. After that, the remaining leases expire on the server. */
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
    // Throwing doesn't count as a response.
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
    // Runs detached because the timer serves all releases and would retain the first caller's async context.
    detached(this.#retryLater);
  }

  #forget(release: PendingRelease): void {
    if (this.#pending.delete(release)) this.inFlight.done();
  }

  #isOver({ until, lasting }: PendingRelease): boolean {
    if (this.clock.now() < until) return false;
    return lasting <= 0 || this.reachability.isUp || this.#pending.size > MAX_PENDING_IN_OUTAGE;
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
