/** Looks at a node, and sets a watch so that its removal is noticed. Answers whether it exists. */
type Look = () => Promise<boolean>;

/** How many look at the same time. */
const MOST = 100;

/**
 * The looks at the nodes of all holds: due at the first renewal, and again on each connection, because watches end with it.
 *
 * Renewals wait only for a few of them. Each costs this process some 100 µs, so 100 000 blocked the event loop for longer than a session
 * lasts, and all locks were lost although their session lived (measured; without a fault, 14 s after the last lock was acquired).
 */
export class Guards {
  #running = 0;
  readonly #waiting = new Set<Look>();

  /** Looks now, and answers whether the node exists; or looks later, and answers nothing, when many look already. */
  add(look: Look): Promise<boolean> | undefined {
    if (this.#running < MOST) return this.#run(look);
    this.#waiting.add(look);
    return undefined;
  }

  async #run(look: Look): Promise<boolean> {
    this.#running += 1;
    try {
      return await look();
    } finally {
      this.#running -= 1;
      this.#next();
    }
  }

  #next(): void {
    const [next] = this.#waiting;
    if (!next) return;
    this.#waiting.delete(next);
    // If it is not answered, the next renewal looks again.
    this.#run(next).catch(() => undefined);
  }
}
