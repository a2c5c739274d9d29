import { LockConfigError } from '../../lock/errors.js';
import type { Dialect, Run } from './dialect.js';

/** A table that has to be there. */
interface NeededTable {
  /** What stands in it. */
  readonly what: 'locks' | 'records';
  /** The statement that fails without it. */
  readonly find: string;
  readonly create: string;
  /** Whether it may be created. */
  readonly synchronize: boolean;
}

/** @throws LockConfigError when the table is missing and must not be created. */
export async function ensureTable(
  run: Run,
  dialect: Pick<Dialect, 'classify'>,
  { what, find, create, synchronize }: NeededTable,
): Promise<void> {
  try {
    await run(find);
    return;
  } catch (error) {
    if (dialect.classify(error) !== 'no-table') throw error;
    if (!synchronize) {
      throw new LockConfigError(
        `The table of the ${what} is missing: create it in a migration (${create}), or set synchronize.`,
        { cause: error },
      );
    }
  }
  try {
    await run(create);
  } catch (error) {
    // Two processes that create it at once may fail in spite of IF NOT EXISTS (Postgres: 23505). Then it is there.
    await run(find).catch(() => {
      throw error;
    });
  }
}
