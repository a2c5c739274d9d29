import fc from 'fast-check';

/**
 * The seed of every exploration. A run passes the same seed to each of its spec files, so a retried file draws the same
 * values.
 */
export const SEED = Number(process.env['LOCK_TESTS_SEED'] ?? Math.floor(Math.random() * 2 ** 31));

fc.configureGlobal({ seed: SEED });

/**
 * Returns the number of tries for an exploration: `short` in `npm test` and `npm run test:all`, `long` in `npm run
 * test:long`.
 */
export function exploration(short: number, long: number): number {
  return process.env['LOCK_TESTS_LONG'] === '1' ? long : short;
}

/** A search for a fault that a test planted. `seed` makes the search quick and reliable. */
export interface Search {
  readonly seed: number;
  readonly numRuns: number;
}

/**
 * Returns whether the simulation of any plan shows a violation, which proves that the simulation can detect the fault.
 */
export async function isCaught<P>(
  plan: fc.Arbitrary<P>,
  simulate: (plan: P) => Promise<{ readonly violations: readonly string[] }>,
  search: Search,
): Promise<boolean> {
  const { failed } = await fc.check(
    fc.asyncProperty(plan, async (each) => {
      expect((await simulate(each)).violations).toEqual([]);
    }),
    { ...search, endOnFailure: true },
  );
  return failed;
}
