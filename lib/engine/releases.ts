import { isPromiseLike } from './answer.js';
import type { Clock, Timer } from './clock.js';
import type { Answer, Holder, LockProvider, Random, ReleaseOutcome } from './lock-provider.js';

const RETRY_FIRST = 100;
const RETRY_AT_MOST = 1_000;

/** How a lock is given back. */
export interface Parting {
  /** Until when its key stays parked, on the monotonic clock; 0, or a time that has passed, frees it. */
  readonly keepUntil: number;
  /** The task failed or the lock was lost. */
  readonly failed: boolean;
}

/** Sends releases, and sends those again that were not answered until there is nothing left to release. */
export class Releases {
  #underWay = 0;
  #onDone: (() => void) | undefined;
  readonly #pauses = new Map<Timer, () => void>();
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
    this.track(this.#insist(holder, parting, until));
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
    for (const [timer, resume] of this.#pauses) {
      this.clock.clearTimer(timer);
      resume();
    }
    this.#pauses.clear();
  }

  async #insist(holder: Holder, parting: Parting, until: number): Promise<void> {
    let outcome: ReleaseOutcome = 'unknown';
    for (let round = 0; outcome === 'unknown' && this.clock.now() < until; round += 1) {
      await this.#pause(Math.min(RETRY_FIRST * 2 ** round, RETRY_AT_MOST) * (0.5 + this.random.fraction() / 2));
      if (this.#closed) return;
      outcome = await this.once(holder, parting, (answered) => answered);
    }
  }

  #end(): void {
    this.#underWay -= 1;
    if (this.#underWay === 0) this.#onDone?.();
  }

  #pause(delay: number): Promise<void> {
    if (this.#closed) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = this.clock.setTimer(() => {
        this.#pauses.delete(timer);
        resolve();
      }, delay);
      this.#pauses.set(timer, resolve);
    });
  }
}
