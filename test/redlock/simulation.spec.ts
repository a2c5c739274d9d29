import { jest } from '@jest/globals';
import fc from 'fast-check';
import { RedlockNodes } from '../../lib/providers/redlock/nodes.js';
import { RedlockRenewal } from '../../lib/providers/redlock/renewal.js';
import { exploration } from '../exploration.js';
import { isCaught } from '../simulation/is-caught.js';
import { type Incident, type Loss, type Plan, simulate } from './simulated-quorum.js';

const PROCESSES = [0, 1, 2] as const;

// Together no more than the margin of 1 % of validity.
const rate = fc.double({ min: 0.996, max: 1.004, noNaN: true });

const incident: fc.Arbitrary<Incident> = fc.record({
  at: fc.integer({ min: 500, max: 11_000 }),
  lasts: fc.integer({ min: 200, max: 3_000 }),
  nodes: fc.subarray([0, 1, 2, 3, 4], { minLength: 1, maxLength: 3 }),
  processes: fc.subarray([...PROCESSES], { minLength: 1 }),
  weather: fc.constantFrom('stuck', 'slow', 'slow', 'brittle'),
});

const loss: fc.Arbitrary<Loss> = fc.record({
  at: fc.integer({ min: 2_000, max: 10_000 }),
  nodes: fc.shuffledSubarray([0, 1, 2, 3, 4], { minLength: 1, maxLength: 3 }),
  manner: fc.constantFrom('restart', 'flush'),
});

const plan: fc.Arbitrary<Plan> = fc
  .record({
    seed: fc.integer(),
    rates: fc.tuple(...PROCESSES.map(() => rate)),
    nodes: fc.constantFrom(3, 3, 5).chain((size) =>
      // The wall clocks of the nodes are seconds apart.
      fc.array(fc.record({ rate, skew: fc.integer({ min: -5_000, max: 5_000 }) }), {
        minLength: size,
        maxLength: size,
      }),
    ),
    delayedRestart: fc.boolean(),
    incidents: fc.array(incident, { minLength: 4, maxLength: 12, size: 'max' }),
    losses: fc.array(loss, { minLength: 1, maxLength: 3 }),
  })
  .map((each) => ({
    ...each,
    // A flush is no restart: delayedRestart does not see it.
    losses: each.losses.map((some) => (each.delayedRestart ? { ...some, manner: 'restart' as const } : some)),
  }));

describe('three processes and nodes that lose their data, on a network that fails in all ways', () => {
  afterEach(() => {
    jest.restoreAllMocks();
  });

  it(
    'never let two believe in one lock, hand out growing tokens, go on when the network has healed and leave nothing',
    async () => {
      const seen = { runs: 0, grants: 0, losses: 0 };
      await fc.assert(
        // What fails is printed with its seed.
        fc.asyncProperty(plan, async (each) => {
          const { violations, grants, losses, starved, leftovers } = await simulate(each);
          expect({ violations, starved, leftovers }).toEqual({ violations: [], starved: [], leftovers: 0 });
          seen.runs += 1;
          seen.grants += grants;
          seen.losses += losses;
        }),
        { numRuns: exploration(6, 500), endOnFailure: true },
      );
      // Else nothing was shown.
      expect(seen.grants).toBeGreaterThan(seen.runs * 50);
      expect(seen.losses).toBeGreaterThan(seen.runs / 2);
    },
    exploration(60_000, 1_800_000),
  );

  // What the simulation is worth.
  it.each<[string, () => void]>([
    [
      'where a minority decides',
      () => {
        jest.spyOn(RedlockNodes.prototype, 'majority', 'get').mockImplementation(function (this: RedlockNodes) {
          return Math.floor(this.count / 2);
        });
      },
    ],
    [
      'where one node is enough to extend',
      () => {
        jest.spyOn(RedlockRenewal.prototype, 'decide').mockImplementation(function (this: RedlockRenewal) {
          return this.yes > 0 ? 'agreed' : this.isComplete ? 'refused' : undefined;
        });
      },
    ],
  ])(
    'are caught %s',
    async (_, plant) => {
      plant();
      // A seed that finds them soon. Others take up to 24 stories.
      expect(await isCaught(plan, simulate, { seed: 5, numRuns: 60 })).toBe(true);
    },
    120_000,
  );
});
