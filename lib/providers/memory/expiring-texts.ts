/** A map of texts that expire. */
export class ExpiringTexts {
  /** Ordered by when each text was last set, which is also the order of expiry if all are kept for the same time. */
  readonly #kept = new Map<string, { readonly text: string; readonly until: number }>();

  /** @param now returns monotonic time */
  constructor(
    private readonly now: () => number,
    private readonly keepFor = Infinity,
  ) {}

  get size(): number {
    this.#expire();
    return this.#kept.size;
  }

  get(name: string): string | undefined {
    const kept = this.#kept.get(name);
    return kept && this.now() < kept.until ? kept.text : undefined;
  }

  set(name: string, text: string, keepFor = this.keepFor): void {
    this.#expire();
    // Delete first, so the entry moves to the end.
    this.#kept.delete(name);
    this.#kept.set(name, { text, until: this.now() + keepFor });
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
