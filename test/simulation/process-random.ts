import type { Random } from '../../lib/api/random.js';

/**
 * The random source of a simulated process: ids that show their owner, and fractions from the simulation's single
 * `chance`.
 */
export function randomOfProcess(index: number, chance: () => number): Random {
  let count = 0;
  return { fraction: chance, id: () => `${index}${(count += 1).toString(16).padStart(31, '0')}` };
}
