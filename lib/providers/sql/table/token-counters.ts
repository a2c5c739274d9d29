import { Batches } from '../connection/batches.js';
import type { LockTable } from './lock-table.js';

/**
 * The fencing tokens of locks whose own connections cannot commit them. Callers that need a token of the same counter while a
 * statement for it is in flight share the next one, since each statement is a commit. A token is counted after its lock was granted, so
 * none is for a caller that came later.
 */
export class TokenCounters {
  readonly #counters = new Map<string, Batches<undefined, bigint>>();

  constructor(private readonly table: LockTable) {}

  next(counter: string): Promise<bigint> {
    let callers = this.#counters.get(counter);
    if (!callers) {
      callers = new Batches(async ({ length }) => {
        const last = await this.table.nextTokens(counter, BigInt(length));
        return Array.from({ length }, (_, index) => last - BigInt(length - 1 - index));
      }, 1);
      this.#counters.set(counter, callers);
    }
    return callers.add(undefined);
  }
}
