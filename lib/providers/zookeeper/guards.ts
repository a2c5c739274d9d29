/** Reads a node and sets a watch to detect its removal. Resolves to whether the node exists. */
type Check = () => Promise<boolean>;

const MAX_CONCURRENT_CHECKS = 100;

/**
 * Checks that the nodes of held locks still exist. A check is due at the first renewal, and again on each new
 * connection, because watches end with their connection.
 *
 * Only a limited number of renewals wait for their checks. A check takes about 100 µs of CPU time: without a limit,
 * 100,000 of them blocked the event loop for longer than the session timeout, and all locks were lost (measured: 14 s
 * after the last lock was acquired, with no other fault).
 */
export class Guards {
  #running = 0;
  readonly #waiting = new Set<Check>();

  /**
   * Checks now and resolves to whether the node exists. If too many checks are running, queues the check and returns
   * undefined.
   */
  add(check: Check): Promise<boolean> | undefined {
    if (this.#running < MAX_CONCURRENT_CHECKS) return this.#run(check);
    this.#waiting.add(check);
    return undefined;
  }

  async #run(check: Check): Promise<boolean> {
    this.#running += 1;
    try {
      return await check();
    } finally {
      this.#running -= 1;
      this.#next();
    }
  }

  #next(): void {
    const [next] = this.#waiting;
    if (!next) return;
    this.#waiting.delete(next);
    // If the check fails, the next renewal retries it.
    this.#run(next).catch(() => undefined);
  }
}
