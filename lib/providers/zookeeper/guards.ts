/** Looks at a node, and sees to it that its removal is noticed. Answers whether it is there. */
export type Look = () => Promise<boolean>;

/** How many look at the same time. */
const AT_ONCE = 100;

/**
 * The looks at the nodes of all holds: due at the first renewal, and again on each connection, since watches end with it.
 *
 * Renewals wait for a few of them alone. Each costs this process some 100 µs, so 100 000 kept the event loop for longer than a session
 * lasts, and all were lost although their session lived (measured; without a fault, 14 s after the last one was acquired).
 */
export class Guards {
  #running = 0;
  readonly #waiting = new Set<Look>();

  /** Looks now, and answers what it sees; or looks later, and answers nothing, where many look already. */
  add(look: Look): Promise<boolean> | undefined {
    if (this.#running < AT_ONCE) return this.#run(look);
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
    // Not answered: the next renewal sees to it.
    this.#run(next).catch(() => undefined);
  }
}
