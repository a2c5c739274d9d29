import fc from 'fast-check';

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
