import { APPLICATION } from './application.mjs';
import { CORE } from './core.mjs';
import { PROVIDERS } from './providers.mjs';
import { RECIPES } from './recipes.mjs';
import { SIMULATED } from './simulated.mjs';

/**
 * Faults that are planted in the sources, one at a time, to see whether a test notices each of them.
 *
 * A fault replaces the text `from` in `file`, which is there one time, by `to`; `breaks` says what is wrong then. It is found by the simulation with
 * `seed`, or by the test `test` in the spec `killedBy`, or by both.
 */
export const MUTANTS = [...SIMULATED, ...CORE, ...RECIPES, ...PROVIDERS, ...APPLICATION];
