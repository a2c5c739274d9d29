import { HolderTable } from '../../core/toolkit/holder-table.js';
import type { Placement } from './placement.js';

/** Where the attempts of this process are, by their own ids and by their ids at the engines. */
export class Placements implements Iterable<Placement> {
  readonly #byAttempt = new HolderTable<Placement>();
  /** Only those that have another id at their engine. */
  readonly #renamed = new HolderTable<Placement>();

  get size(): number {
    return this.#byAttempt.size;
  }

  [Symbol.iterator](): Iterator<Placement> {
    return this.#byAttempt.values()[Symbol.iterator]();
  }

  /** That of an attempt. */
  of(attempt: string): Placement | undefined {
    return this.#byAttempt.get(attempt);
  }

  /** That which an engine knows by this id. */
  at(holder: string): Placement | undefined {
    const placement = this.#renamed.get(holder) ?? this.#byAttempt.get(holder);
    return placement?.holder === holder ? placement : undefined;
  }

  add(placement: Placement): void {
    this.#byAttempt.set(placement.attempt.holder, placement);
    if (placement.isRenamed) this.#renamed.set(placement.holder, placement);
  }

  /** Whether it is still the one of its attempt. */
  has(placement: Placement): boolean {
    return this.#byAttempt.get(placement.attempt.holder) === placement;
  }

  delete(placement: Placement): void {
    if (placement.isRenamed) this.#renamed.delete(placement.holder);
    if (this.has(placement)) this.#byAttempt.delete(placement.attempt.holder);
  }
}
