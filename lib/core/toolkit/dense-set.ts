/** An element of a {@link DenseSet}. */
export interface DenseSetItem {
  /** The index in the set, or -1 if the item isn't in a set. Used only by the set. */
  slot: number;
}

/**
 * An unordered set backed by an array. Each item knows its index, and a deleted item is replaced by the last one, so
 * adding and deleting don't allocate memory.
 *
 * Used for objects that come and go with every lock. An item can be in only one set at a time.
 */
export class DenseSet<T extends DenseSetItem> {
  readonly #values: T[] = [];

  get size(): number {
    return this.#values.length;
  }

  has(value: T): boolean {
    return value.slot >= 0;
  }

  /** Adds an item that isn't in any set. */
  add(value: T): void {
    value.slot = this.#values.length;
    this.#values.push(value);
  }

  /** Returns whether the set contained the item. */
  delete(value: T): boolean {
    if (!this.has(value)) return false;
    const { slot } = value;
    value.slot = -1;
    const last = this.#values.pop() as T;
    if (last === value) return true;
    this.#values[slot] = last;
    last.slot = slot;
    return true;
  }

  /** A snapshot. */
  values(): T[] {
    return this.#values.slice();
  }
}
