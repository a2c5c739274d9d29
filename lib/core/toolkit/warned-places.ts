// Enough to notice the problem. Limits log size and memory use if places contain values, such as keys.
const MAX_WARNINGS = 100;

/** The places (methods, keys, or pairs of locks) for which a warning has already been logged. */
export class WarnedPlaces {
  readonly #places = new Set<string>();

  /** @returns whether to log a warning: false if one was already logged for this place or for 100 others */
  add(place: string): boolean {
    if (this.#places.has(place) || this.#places.size === MAX_WARNINGS) return false;
    this.#places.add(place);
    return true;
  }
}
