// Two clocks drift apart by up to 100 µs a second: after this many ms, 6 ms.
const RECENT = 60_000;

/**
 * Which token the nodes will probably accept.
 *
 * A token has to be larger than all earlier ones, and a majority has to know it before it is used. Asking the nodes first and writing
 * the largest answer back takes two round trips. When the votes carry a token that is larger than the counters of a majority, one
 * is enough. It grows as the nodes' own clocks do, from the last token that they agreed on, so that tokens stay near their
 * time. Nothing depends on it being right: nodes that know a larger token say so, and the two round trips are made.
 */
export class TokenEstimate {
  #token = 0;
  #at = -Infinity;
  #last = 0;

  /** A majority has agreed on this token just now, after the nodes have named theirs. */
  observe(token: number, now: number): void {
    this.#token = token;
    this.#at = now;
    this.#last = Math.max(this.#last, token);
  }

  /** A token that was not named yet by this process; nothing when none was agreed on for long. */
  next(now: number): number | undefined {
    if (now - this.#at > RECENT) return undefined;
    this.#last = Math.max(this.#last + 1, this.#token + Math.floor((now - this.#at) * 1_000));
    return this.#last;
  }
}
