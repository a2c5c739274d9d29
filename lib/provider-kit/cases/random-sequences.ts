import type { CaseDefinition } from '../case-definition.js';
import { LockModel } from '../lock-model.js';
import { SeededRandom } from '../seeded-random.js';

/** Event sequences that nobody thought to test. */
export const randomSequenceCases: readonly CaseDefinition[] = [
  {
    id: '#11',
    title: 'random sequences of read, write, release, renewal and expiry agree with a model',
    async run(stage) {
      const sequences = stage.harness.clock ? 30 : 3;
      const play = async (sequence: number) => {
        const model = new LockModel(stage, await stage.directs(3), new SeededRandom(stage.seed + sequence));
        try {
          for (let step = 0; step < 60; step += 1) await model.step();
        } catch (error) {
          const steps = model.history.join(', ');
          throw new Error(`Seed ${stage.seed}, sequence ${sequence}: ${String(error)} after ${steps}`, {
            cause: error,
          });
        }
      };
      // Run concurrently because they mostly wait for leases to end; each has its own keys.
      await Promise.all(Array.from({ length: sequences }, (_, sequence) => play(sequence)));
    },
  },
];
