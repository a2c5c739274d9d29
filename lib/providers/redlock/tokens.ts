// Two clocks drift apart by up to 100 µs a second: after this many ms, 6 ms.
const RECENT = 60_000;

/**
 * Estimates which token the nodes will accept.
 *
 * A token has to be larger than all earlier ones, and a majority has to know it before it is used. Asking the nodes first and writing
 * the largest answer back takes two round trips. When the votes carry a token that is larger than the counters of a majority, one
 * is enough. The estimate grows as the nodes' own clocks do, from the last token that they agreed on, so that tokens stay near their
 * time. Nothing depends on it being right: nodes that know a larger token answer with theirs, and the two round trips are made.
 */
export class Tokens {
  #isMissingAtNode = false;
  #agreed = 0;
  #agreedAt = -Infinity;
  #last = 0;

  /** The next grant has to write its token to the nodes. */
  get isMissingAtNode(): boolean {
    return this.#isMissingAtNode;
  }

  /**
   * A node without a counter has answered after a decision, and maybe after a release: the next grant writes its token to the nodes,
   * while that node has a vote for it.
   */
  missedAtNode(): void {
    this.#isMissingAtNode = true;
  }

  /** A grant was agreed on, and has written its token if that was missing. */
  granted(): void {
    this.#isMissingAtNode = false;
  }

  /** A majority has agreed on this token just now, after the nodes have named theirs. */
  observe(token: number, now: number): void {
    this.#agreed = token;
    this.#agreedAt = now;
    this.#last = Math.max(this.#last, token);
  }

  /** The first of `count` tokens that this process has not named yet; nothing when the nodes have not agreed on one for long. */
  next(now: number, count: number): number | undefined {
    if (now - this.#agreedAt > RECENT) return undefined;
    const first = Math.max(this.#last + 1, this.#agreed + Math.floor((now - this.#agreedAt) * 1_000));
    this.#last = first + count - 1;
    return first;
  }
}
