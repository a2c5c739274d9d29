/** A map of texts. An entry expires a fixed time after it was last set. */
export class ExpiringTexts {
  /** Ordered by expiry. */
  readonly #kept = new Map<string, { readonly text: string; readonly until: number }>();

  /** @param now returns monotonic time */
  constructor(
    private readonly keepFor: number,
    private readonly now: () => number,
  ) {}

  get size(): number {
    this.#expire();
    return this.#kept.size;
  }

  get(name: string): string | undefined {
    this.#expire();
    return this.#kept.get(name)?.text;
  }

  set(name: string, text: string): void {
    this.#expire();
    // Delete first, so the entry moves to the end.
    this.#kept.delete(name);
    this.#kept.set(name, { text, until: this.now() + this.keepFor });
  }

  delete(name: string): void {
    this.#kept.delete(name);
  }

  clear(): void {
    this.#kept.clear();
  }

  /** A snapshot of all entries. */
  entries(): [name: string, text: string][] {
    this.#expire();
    return Array.from(this.#kept, ([name, { text }]) => [name, text]);
  }

  #expire(): void {
    const now = this.now();
    for (const [name, { until }] of this.#kept) {
      if (until > now) return;
      this.#kept.delete(name);
    }
  }
}
