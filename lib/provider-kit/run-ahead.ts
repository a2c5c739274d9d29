import type { ConformanceCase } from './conformance-cases.js';

/**
 * Cases mostly wait, so this runs them concurrently for a runner that requests one result at a time. After the
 * first case that the runner requests, the next ones are started as soon as there is room.
 */
export class RunAhead {
  readonly #results = new Map<ConformanceCase, Promise<void>>();
  readonly #waiting: ConformanceCase[];
  #running = 0;

  /** @param width how many cases run at a time; with 1, only the requested one starts. */
  constructor(
    cases: readonly ConformanceCase[],
    private readonly width: number,
  ) {
    this.#waiting = cases.filter(({ alone }) => !alone);
  }

  async result(wanted: ConformanceCase): Promise<void> {
    if (wanted.alone) return wanted.run();
    // Drop any earlier cases, which the runner has skipped.
    if (this.#waiting.includes(wanted)) this.#waiting.splice(0, this.#waiting.indexOf(wanted));
    if (!this.#results.has(wanted)) this.#start(wanted);
    this.#fill();
    return this.#results.get(wanted);
  }

  /**
   * Ends the run: no more results will be requested, for example because the runner runs only some cases. Resolves when
   * the cases in flight have ended.
   */
  async end(): Promise<void> {
    this.#waiting.length = 0;
    await Promise.allSettled(this.#results.values());
  }

  #fill(): void {
    while (this.#running < this.width && this.width > 1) {
      const [next] = this.#waiting;
      if (!next) return;
      this.#start(next);
    }
  }

  #start(next: ConformanceCase): void {
    this.#waiting.splice(this.#waiting.indexOf(next), 1);
    this.#running += 1;
    const result = next.run();
    this.#results.set(next, result);
    const ended = () => {
      this.#running -= 1;
      this.#fill();
    };
    // A failure is reported when the runner requests the result, not before.
    result.then(ended, ended);
  }
}
