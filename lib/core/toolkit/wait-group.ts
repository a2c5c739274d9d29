/** Counts work that others wait for. */
export class WaitGroup {
  #count = 0;
  #waiting: (() => void)[] = [];

  get isIdle(): boolean {
    return this.#count === 0;
  }

  add(): void {
    this.#count += 1;
  }

  done(): void {
    this.#count -= 1;
    if (this.#count > 0 || this.#waiting.length === 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  /** Resolves when all that was added is done, for the first time from now on. */
  idle(): Promise<void> {
    return this.isIdle ? Promise.resolve() : new Promise((resolve) => this.#waiting.push(resolve));
  }
}
