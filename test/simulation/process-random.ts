import type { Random } from '../../lib/api/random.js';

/** What a simulated process draws: ids that say whose they are, and fractions of the one `chance` of the whole simulation. */
export function randomOfProcess(index: number, chance: () => number): Random {
  let count = 0;
  return { fraction: chance, id: () => `${index}${(count += 1).toString(16).padStart(31, '0')}` };
}
