import { APPLICATION } from './application.mjs';
import { CORE } from './core.mjs';
import { PROVIDERS } from './providers.mjs';
import { RECIPES } from './recipes.mjs';
import { SIMULATED } from './simulated.mjs';

/**
 * Faults that are planted in the sources, one at a time, to see whether a test notices each of them.
 *
 * A fault replaces the text `from`, which occurs one time in `file`, with `to`. `breaks` says what is wrong then. The
 * simulation finds it with `seed`, or else the test `test` of the spec `killedBy` fails.
 */
export const MUTANTS = [...SIMULATED, ...CORE, ...RECIPES, ...PROVIDERS, ...APPLICATION];
