import type { StoredHold } from './stored-hold.js';

/**
 * One key's holders by id, oldest first. There may be many, so no operation on a single holder iterates over all
 * of them.
 *
 * Most keys have at most one holder, which is stored without a map: a map accounted for 5 % of an uncontended lock's
 * cost.
 */
export class Holders {
  #only: StoredHold | undefined;
  #several: Map<string, StoredHold> | undefined;

  get size(): number {
    return this.#several?.size ?? (this.#only === undefined ? 0 : 1);
  }

  get oldest(): StoredHold | undefined {
    return this.#several === undefined ? this.#only : this.#several.values().next().value;
  }

  get(holder: string): StoredHold | undefined {
    if (this.#several !== undefined) return this.#several.get(holder);
    return this.#only?.holder === holder ? this.#only : undefined;
  }

  add(hold: StoredHold): void {
    if (this.#several !== undefined) this.#several.set(hold.holder, hold);
    else if (this.#only === undefined) this.#only = hold;
    else {
      const first = this.#only;
      this.#several = new Map([first, hold].map((each) => [each.holder, each]));
      this.#only = undefined;
    }
  }

  delete(holder: string): void {
    if (this.#several !== undefined) this.#several.delete(holder);
    else if (this.#only?.holder === holder) this.#only = undefined;
  }

  /** Oldest first. The current one may be deleted during iteration. */
  values(): Iterable<StoredHold> {
    if (this.#several !== undefined) return this.#several.values();
    return this.#only === undefined ? [] : [this.#only];
  }
}
