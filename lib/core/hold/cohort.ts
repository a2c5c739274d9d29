import type { Grant } from '../../api/lock-provider.js';

// How long after its grant a cohort lets callers in, in ms. With longer tasks the round trip does not matter, so processes alternate.
const COHORT_TIME = 10;

/**
 * The callers of this process that may hold by one grant one after the other, each with the next token (lock cohorting, after Dice, Marathe and
 * Shavit, PPoPP 2012). They are those that had come when it was granted.
 */
export class Cohort {
  /** How many callers may have the lock after its present holder. */
  #followers: number;
  #fencingToken: bigint | null;
  #isHandedOff = false;

  /** @param lastArrival the number of the last caller that had come by `grantedAt` */
  constructor(
    { followers = 0, fencingToken }: Pick<Grant, 'followers' | 'fencingToken'>,
    private readonly grantedAt: number,
    private readonly lastArrival: number,
  ) {
    this.#followers = followers;
    this.#fencingToken = fencingToken;
  }

  /** The token of its present holder. */
  get fencingToken(): bigint | null {
    return this.#fencingToken;
  }

  /** Its present holder is not the first one. */
  get isHandedOff(): boolean {
    return this.#isHandedOff;
  }

  /** Whether the caller with this number may be the next one. */
  mayInclude(arrival: number, now: number): boolean {
    return this.#followers > 0 && arrival <= this.lastArrival && now - this.grantedAt <= COHORT_TIME;
  }

  /** The next caller holds by the grant. */
  handOff(): void {
    this.#followers -= 1;
    this.#isHandedOff = true;
    if (this.#fencingToken !== null) this.#fencingToken += 1n;
  }

  close(): void {
    this.#followers = 0;
  }
}
