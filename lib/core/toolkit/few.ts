/**
 * A set that usually has one value, or none: it costs no memory of its own until it has two.
 *
 * A `Set` with one value takes 350 bytes, as much as the rest of the object that owns it.
 */
export class Few<T extends object> {
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

  /** All as they are now. */
  values(): readonly T[] {
    if (this.#first === undefined) return NONE as readonly T[];
    return this.#others === undefined ? [this.#first] : [this.#first, ...this.#others];
  }
}

const NONE: readonly object[] = [];
