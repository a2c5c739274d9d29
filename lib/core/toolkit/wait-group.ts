/** Counts work that others wait for. */
export class WaitGroup {
  #count = 0;
  #idle: Promise<void> | undefined;
  #onIdle: (() => void) | undefined;

  get isIdle(): boolean {
    return this.#count === 0;
  }

  add(): void {
    this.#count += 1;
  }

  done(): void {
    this.#count -= 1;
    if (this.#count === 0 && this.#onIdle !== undefined) this.#onIdle();
  }

  /** Resolves when all that was added is done, for the first time from now on. */
  idle(): Promise<void> {
    if (this.isIdle) return Promise.resolve();
    this.#idle ??= new Promise((resolve) => {
      this.#onIdle = () => {
        this.#idle = undefined;
        this.#onIdle = undefined;
        resolve();
      };
    });
    return this.#idle;
  }
}
