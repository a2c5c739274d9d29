/**
 * A set that usually has at most one value. It allocates a `Set` only for the second value.
 *
 * A `Set` with one value takes 350 bytes, as much as the rest of the object that owns it.
 */
export class SmallSet<T extends object> {
  #first: T | undefined;
  #others: Set<T> | undefined;

  get size(): number {
    return (this.#first === undefined ? 0 : 1) + (this.#others?.size ?? 0);
  }

  add(value: T): void {
    if (this.#first === undefined) this.#first = value;
    else (this.#others ??= new Set()).add(value);
  }

  delete(value: T): void {
    if (value === this.#first) {
      const [next] = this.#others ?? [];
      if (next !== undefined) this.#others?.delete(next);
      this.#first = next;
    } else this.#others?.delete(value);
  }

  /** A snapshot. */
  values(): readonly T[] {
    if (this.#first === undefined) return NONE as readonly T[];
    return this.#others === undefined ? [this.#first] : [this.#first, ...this.#others];
  }
}

const NONE: readonly object[] = [];
