// Enough to notice, and a bound on log and memory where places are made of values, such as keys.
const MOST_WARNINGS = 100;

/** The places of which the log was warned. */
export class WarnedPlaces {
  readonly #places = new Set<string>();

  /** @returns whether to warn of the place now: it was not warned of before, and fewer than 100 others were */
  add(place: string): boolean {
    if (this.#places.has(place) || this.#places.size === MOST_WARNINGS) return false;
    this.#places.add(place);
    return true;
  }
}
