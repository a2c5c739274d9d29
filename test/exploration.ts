import fc from 'fast-check';

/** Decides all that explorations draw. A run of the tests gives each of its files the same, so a file that is repeated draws the same. */
export const SEED = Number(process.env['LOCK_TESTS_SEED'] ?? Math.floor(Math.random() * 2 ** 31));

fc.configureGlobal({ seed: SEED });

/** How much an exploration tries: `short` in `npm test` and `npm run test:all`, `long` in `npm run test:long`. */
export function exploration(short: number, long: number): number {
  return process.env['LOCK_TESTS_LONG'] === '1' ? long : short;
}

/** A search for a fault planted by a test. `seed` finds it soon and reliably. */
export interface Search {
  readonly seed: number;
  readonly numRuns: number;
}

/** Whether the simulation of some plan shows a violation, which proves that the simulation can detect the fault. */
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
