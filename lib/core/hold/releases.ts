import { isPromiseLike } from '../toolkit/answer.js';
import type { Clock, Timer } from '../../api/clock.js';
import type { Answer, Holder, LockProvider, ReleaseOutcome } from '../../api/lock-provider.js';
import type { Random } from '../../api/random.js';

const RETRY_FIRST = 100;
const RETRY_AT_MOST = 1_000;

/** How a lock is given back. */
export interface Parting {
  /** Until when its key stays parked, on the monotonic clock; 0, or a time that has passed, frees it. */
  readonly keepUntil: number;
  /** The task failed or the lock was lost. */
  readonly failed: boolean;
}

/** A release that was not answered. */
interface PendingRelease {
  readonly holder: Holder;
  readonly parting: Parting;
  /** When the lease is over anyway, on the monotonic clock. */
  readonly until: number;
  /** Sent again, and not answered yet. */
  isSent: boolean;
}

/**
 * Sends releases, and sends those again that were not answered until there is nothing left to release.
 *
 * One timer for all: an outage leaves as many of them as there were callers, and a loop for each took a third of a core.
 */
export class Releases {
  #underWay = 0;
  #onDone: (() => void) | undefined;
  readonly #pending = new Set<PendingRelease>();
  #timer: Timer | undefined;
  /** How often was looked since there is something pending. */
  #rounds = 0;
  #closed = false;
  readonly #unanswered = (cause: unknown): ReleaseOutcome => {
    this.onUnavailable(cause);
    return 'unknown';
  };

  constructor(
    private readonly provider: Pick<LockProvider, 'release'>,
    private readonly clock: Clock,
    private readonly random: Random,
    private readonly onUnavailable: (cause: unknown) => void,
  ) {}

  /** Sends one release, and gives what `next` makes of its outcome. A provider that fails has not answered. */
  once<T>(holder: Holder, { keepUntil, failed }: Parting, next: (outcome: ReleaseOutcome) => T): Answer<T> {
    let answer: Answer<ReleaseOutcome>;
    try {
      const keepFor = keepUntil === 0 ? 0 : Math.max(0, keepUntil - this.clock.now());
      answer = this.provider.release(holder, { keepFor, failed });
    } catch (error) {
      answer = this.#unanswered(error);
    }
    if (!isPromiseLike(answer)) return next(answer);
    this.#underWay += 1;
    const finish = (outcome: ReleaseOutcome): T => {
      const result = next(outcome);
      this.#end();
      return result;
    };
    return answer.then(finish, (cause: unknown) => finish(this.#unanswered(cause)));
  }

  /** Releases in the background, again and again until it was answered or `until` (when the lease is over anyway). */
  send(holder: Holder, parting: Parting, until: number): void {
    void this.once(holder, parting, (outcome) => {
      if (outcome === 'unknown') this.retry(holder, parting, until);
    });
  }

  /** As {@link send}, after a first release that was not answered. */
  retry(holder: Holder, parting: Parting, until: number): void {
    if (this.#closed || this.clock.now() >= until) return;
    this.#underWay += 1;
    this.#pending.add({ holder, parting, until, isSent: false });
    this.#lookLater();
  }

  /** Sends again now what is pending: the backend answers again. */
  retryAll(): void {
    const now = this.clock.now();
    for (const release of this.#pending) {
      if (release.isSent) continue;
      if (now >= release.until) this.#forget(release);
      else void this.#sendAgain(release);
    }
  }

  /** Counts `work`, which must not reject, among what {@link close} waits for. */
  track(work: Promise<void>): void {
    this.#underWay += 1;
    void work.then(() => {
      this.#end();
    });
  }

  /** Waits up to `patience` ms for what is under way, then gives up on it: the leases end by themselves. */
  async close(patience: number): Promise<void> {
    if (this.#underWay > 0) {
      let timer: Timer | undefined;
      await new Promise<void>((resolve) => {
        this.#onDone = resolve;
        timer = this.clock.setTimer(resolve, patience, true);
      });
      if (timer !== undefined) this.clock.clearTimer(timer);
    }
    this.#closed = true;
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#pending.clear();
  }

  async #sendAgain(release: PendingRelease): Promise<void> {
    release.isSent = true;
    const outcome = await this.once(release.holder, release.parting, (answered) => answered);
    release.isSent = false;
    if (outcome !== 'unknown') this.#forget(release);
  }

  #forget(release: PendingRelease): void {
    if (this.#pending.delete(release)) this.#end();
  }

  #lookLater(): void {
    if (this.#timer !== undefined || this.#closed) return;
    if (this.#pending.size === 0) {
      this.#rounds = 0;
      return;
    }
    const delay = Math.min(RETRY_FIRST * 2 ** this.#rounds, RETRY_AT_MOST) * (0.5 + this.random.fraction() / 2);
    this.#rounds += 1;
    this.#timer = this.clock.setTimer(() => {
      this.#timer = undefined;
      this.retryAll();
      this.#lookLater();
    }, delay);
  }

  #end(): void {
    this.#underWay -= 1;
    if (this.#underWay === 0) this.#onDone?.();
  }
}
