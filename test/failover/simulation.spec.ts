import { jest } from '@jest/globals';
import fc from 'fast-check';
import { Confirmation } from '../../lib/providers/failover/confirmation.js';
import { exploration } from '../exploration.js';
import { isCaught } from '../simulation/is-caught.js';
import { type Incident, type Plan, simulate } from './simulated-world.js';

const PROCESSES = [0, 1, 2] as const;

const incident: fc.Arbitrary<Incident> = fc.record({
  at: fc.integer({ min: 2_000, max: 22_000 }),
  lasts: fc.integer({ min: 200, max: 6_000 }),
  // Mostly the provider that is preferred: a switch is what is to be seen.
  server: fc.constantFrom('a', 'a', 'a', 'b', 'record'),
  processes: fc.subarray([...PROCESSES], { minLength: 1 }),
  kind: fc.constantFrom('cut', 'cut', 'lossy', 'slow'),
});

const plan: fc.Arbitrary<Plan> = fc.record({
  seed: fc.integer(),
  rates: fc.tuple(...PROCESSES.map(() => fc.double({ min: 0.99, max: 1.01, noNaN: true }))),
  incidents: fc.array(incident, { minLength: 3, maxLength: 8 }),
});

describe('three processes, two providers and a record on a network that fails in all ways', () => {
  afterEach(() => {
    jest.restoreAllMocks();
  });

  it(
    'never let two believe in one lock, hand out growing tokens, and go on when the network has healed',
    async () => {
      const seen = { runs: 0, grants: 0, switches: 0 };
      await fc.assert(
        // What fails is printed with its seed.
        fc.asyncProperty(plan, async (each) => {
          const { violations, grants, switches, starved } = await simulate(each);
          expect({ violations, starved }).toEqual({ violations: [], starved: [] });
          seen.runs += 1;
          seen.grants += grants;
          seen.switches += switches;
        }),
        { numRuns: exploration(5, 200), endOnFailure: true },
      );
      // Else nothing was shown.
      expect(seen.switches).toBeGreaterThan(0);
      expect(seen.grants).toBeGreaterThan(seen.runs * 50);
    },
    exploration(120_000, 1_800_000),
  );

  // What the simulation is worth.
  it.each<[string, () => void]>([
    [
      'without the wait at a switch',
      () => jest.spyOn(Confirmation.prototype, 'settlesAt', 'get').mockReturnValue(-Infinity),
    ],
    [
      'with locks that are believed as long as their provider keeps them',
      () => jest.spyOn(Confirmation.prototype, 'validUntil').mockReturnValue(Infinity),
    ],
    [
      'with confirmations that are good for twice as long',
      () => {
        const { validUntil } = Confirmation.prototype;
        jest.spyOn(Confirmation.prototype, 'validUntil').mockImplementation(function (this: Confirmation, epoch) {
          return validUntil.call(this, epoch) + this.window;
        });
      },
    ],
  ])(
    'are caught %s',
    async (_, plant) => {
      plant();
      // A seed that finds them soon. Others take up to 12 stories.
      expect(await isCaught(plan, simulate, { seed: 8, numRuns: 40 })).toBe(true);
    },
    120_000,
  );
});
