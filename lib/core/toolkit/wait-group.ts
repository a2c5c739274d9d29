/** Counts pending work, like Go's WaitGroup. */
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

  /** Resolves the next time all work is done. */
  idle(): Promise<void> {
    return this.isIdle ? Promise.resolve() : new Promise((resolve) => this.#waiting.push(resolve));
  }
}
