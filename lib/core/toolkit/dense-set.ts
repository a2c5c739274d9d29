/** An element of a {@link DenseSet}. */
export interface Placed {
  /** Where it is; -1 when no set has it. Only the set reads and changes it. */
  place: number;
}

/**
 * Values in no order, in memory that is used again: each knows its place, and the last one moves to the place of one that leaves.
 *
 * For what comes and goes with every lock and is not looked up. A value is in one set at a time.
 */
export class DenseSet<T extends Placed> {
  readonly #values: T[] = [];

  get size(): number {
    return this.#values.length;
  }

  has(value: T): boolean {
    return value.place >= 0;
  }

  /** Adds one that is not in it. */
  add(value: T): void {
    value.place = this.#values.length;
    this.#values.push(value);
  }

  /** Answers whether it was there. */
  delete(value: T): boolean {
    if (!this.has(value)) return false;
    const { place } = value;
    value.place = -1;
    const last = this.#values.pop() as T;
    if (last === value) return true;
    this.#values[place] = last;
    last.place = place;
    return true;
  }

  /** All as they are now. */
  values(): T[] {
    return this.#values.slice();
  }
}
