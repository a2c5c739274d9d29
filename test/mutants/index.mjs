import { APPLICATION } from './application.mjs';
import { CORE } from './core.mjs';
import { PROVIDERS } from './providers.mjs';
import { SIMULATED } from './simulated.mjs';

/**
 * Faults that are planted in the sources, one at a time, to see whether a test notices each of them.
 *
 * A fault replaces the text `from`, which occurs one time in `file`, with `to`. `breaks` says what is wrong then. The
 * simulation finds it with `seed`, or else the test `test` of the spec `killedBy` fails.
 */
export const MUTANTS = [...SIMULATED, ...CORE, ...PROVIDERS, ...APPLICATION];

/**
 * The text of `mutant.file` with its fault.
 *
 * @throws if `from` does not occur exactly one time. Then the code has changed: write the fault anew for what does its
 * job now.
 */
export function planted(mutant, text) {
  const places = text.split(mutant.from).length - 1;
  if (places !== 1) {
    throw new Error(`${mutant.id}: ${mutant.file} has ${places} places with this text, and not one:\n${mutant.from}`);
  }
  return text.replace(mutant.from, () => mutant.to);
}
