import type { StoredHold } from './stored-hold.js';

/**
 * Those who have a key, by holder, the oldest first. There may be any number of them, so no operation of a single one goes over all.
 *
 * One alone, as most keys have at most, needs no map, which took a twentieth of the time of an uncontended lock.
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

  /** The oldest first. Each may be deleted when it is reached. */
  values(): Iterable<StoredHold> {
    if (this.#several !== undefined) return this.#several.values();
    return this.#only === undefined ? [] : [this.#only];
  }
}
