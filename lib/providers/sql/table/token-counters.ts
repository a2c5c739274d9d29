import type { LockTable } from './lock-table.js';

interface TokenRequest {
  readonly resolve: (token: bigint) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * The fencing tokens of locks whose own connections cannot commit them. Callers that need a token of the same counter while a
 * statement for it is in flight share the next one, since each statement is a commit.
 */
export class TokenCounters {
  /** The callers that the next statement of a counter is for. */
  readonly #waiting = new Map<string, TokenRequest[]>();

  constructor(private readonly table: LockTable) {}

  next(counter: string): Promise<bigint> {
    return new Promise((resolve, reject) => {
      const waiting = this.#waiting.get(counter);
      if (waiting) {
        waiting.push({ resolve, reject });
        return;
      }
      this.#waiting.set(counter, [{ resolve, reject }]);
      void this.#count(counter);
    });
  }

  async #count(counter: string): Promise<void> {
    for (;;) {
      // A token must be counted after its lock was granted: only for callers that came before the statement is sent.
      const callers = this.#waiting.get(counter) ?? [];
      if (callers.length === 0) break;
      this.#waiting.set(counter, []);
      try {
        const last = await this.table.nextTokens(counter, BigInt(callers.length));
        callers.toReversed().forEach(({ resolve }, index) => {
          resolve(last - BigInt(index));
        });
      } catch (error) {
        for (const { reject } of callers) reject(error);
      }
    }
    this.#waiting.delete(counter);
  }
}
