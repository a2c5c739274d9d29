import fc from 'fast-check';

/** A search for a fault that a test has planted; `seed` is one that finds it soon, so that it is found each time. */
export interface Search {
  readonly seed: number;
  readonly numRuns: number;
}

/** Whether the simulation of some plan shows a violation: what a simulation is worth that shows none otherwise. */
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
