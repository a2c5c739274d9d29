import type { Grant } from '../../api/lock-provider.js';

// A cohort accepts callers only for this long. If tasks take longer, the round trip hardly matters, so processes should
// take turns.
const COHORT_MS = 10;

/**
 * The callers in this process that may hold the lock in turn under one grant, each with the next fencing token (lock
 * cohorting: Dice, Marathe, and Shavit, PPoPP 2012). Only callers that were waiting when the lock was granted belong to
 * the cohort.
 */
export class Cohort {
  /** How many callers may still follow the current holder. */
  #followers: number;
  #fencingToken: bigint | null;
  #isHandedOff = false;

  /** @param lastArrival the arrival number of the last caller in the queue at `grantedAt` */
  constructor(
    { followers = 0, fencingToken }: Pick<Grant, 'followers' | 'fencingToken'>,
    private readonly grantedAt: number,
    private readonly lastArrival: number,
  ) {
    this.#followers = followers;
    this.#fencingToken = fencingToken;
  }

  /** The current holder's token. */
  get fencingToken(): bigint | null {
    return this.#fencingToken;
  }

  /** Whether the lock was handed off at least once. */
  get isHandedOff(): boolean {
    return this.#isHandedOff;
  }

  /** Whether the caller with this arrival number may be the next holder. */
  mayInclude(arrival: number, now: number): boolean {
    return this.#followers > 0 && arrival <= this.lastArrival && now - this.grantedAt <= COHORT_MS;
  }

  handOff(): void {
    this.#followers -= 1;
    this.#isHandedOff = true;
    if (this.#fencingToken !== null) this.#fencingToken += 1n;
  }

  close(): void {
    this.#followers = 0;
  }
}
