import { APPLICATION } from './application.mjs';
import { CORE } from './core.mjs';
import { PROVIDERS } from './providers.mjs';
import { SIMULATED } from './simulated.mjs';

/**
 * Faults to plant in the sources, one at a time, to check that a test detects each one.
 *
 * A fault replaces the text `from`, which must occur exactly once in `file`, with `to`. `breaks` describes the
 * resulting defect. Either the simulation finds it with `seed`, or the test `test` in the spec `killedBy` fails.
 */
export const MUTANTS = [...SIMULATED, ...CORE, ...PROVIDERS, ...APPLICATION];

/**
 * Returns the text of `mutant.file` with its fault.
 *
 * @throws If `from` does not occur exactly once, because the code has changed. Rewrite the fault for the code that does
 * the same job now.
 */
export function planted(mutant, text) {
  const places = text.split(mutant.from).length - 1;
  if (places !== 1) {
    throw new Error(`${mutant.id}: ${mutant.file} contains this text ${places} times instead of once:\n${mutant.from}`);
  }
  return text.replace(mutant.from, () => mutant.to);
}
