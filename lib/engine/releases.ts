import { isPromiseLike } from './answer.js';
import type { Clock, Timer } from './clock.js';
import type { Answer, Holder, LockProvider, Random, ReleaseManner, ReleaseOutcome } from './lock-provider.js';

const RETRY_FIRST = 100;
const RETRY_AT_MOST = 1_000;

/** Sends releases, and sends those again that were not answered until there is nothing left to release. */
export class Releases {
  readonly #background = new Set<Promise<void>>();
  readonly #pauses = new Map<Timer, () => void>();
  #closed = false;

  constructor(
    private readonly provider: LockProvider,
    private readonly clock: Clock,
    private readonly random: Random,
  ) {}

  /** Sends one release. A provider that fails has not answered. */
  once(holder: Holder, manner: ReleaseManner): Answer<ReleaseOutcome> {
    try {
      const answer = this.provider.release(holder, manner);
      return isPromiseLike(answer) ? answer.then(undefined, () => 'unknown' as const) : answer;
    } catch {
      return 'unknown';
    }
  }

  /** Releases in the background, again and again until it was answered or `until` (when the lease is over anyway). */
  send(holder: Holder, manner: ReleaseManner, until: number): void {
    const answer = this.once(holder, manner);
    if (isPromiseLike(answer) || answer === 'unknown') this.track(this.#insist(holder, manner, until, answer));
  }

  /** As {@link send}, after a first release that was not answered. */
  retry(holder: Holder, manner: ReleaseManner, until: number): void {
    this.track(this.#insist(holder, manner, until, 'unknown'));
  }

  /** Counts `work`, which must not reject, among what {@link close} waits for. */
  track(work: Promise<void>): void {
    this.#background.add(work);
    void work.then(() => this.#background.delete(work));
  }

  /** Waits up to `patience` ms for what is under way, then gives up on it: the leases end by themselves. */
  async close(patience: number): Promise<void> {
    const giveUp = this.clock.setTimer(() => {
      this.#closed = true;
      for (const [timer, resume] of this.#pauses) {
        this.clock.clearTimer(timer);
        resume();
      }
      this.#pauses.clear();
    }, patience);
    while (this.#background.size > 0) await Promise.all(this.#background);
    this.clock.clearTimer(giveUp);
  }

  async #insist(holder: Holder, manner: ReleaseManner, until: number, first: Answer<ReleaseOutcome>): Promise<void> {
    let outcome = await first;
    for (let round = 0; outcome === 'unknown' && !this.#closed && this.clock.now() < until; round += 1) {
      await this.#pause(Math.min(RETRY_FIRST * 2 ** round, RETRY_AT_MOST) * (0.5 + this.random.fraction() / 2));
      outcome = await this.once(holder, manner);
    }
  }

  #pause(delay: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.clock.setTimer(() => {
        this.#pauses.delete(timer);
        resolve();
      }, delay);
      this.#pauses.set(timer, resolve);
    });
  }
}
