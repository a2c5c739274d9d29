import fc from 'fast-check';

/** Decides all that explorations draw. A run of the tests gives each of its files the same, so a file that is repeated draws the same. */
export const SEED = Number(process.env['LOCK_TESTS_SEED'] ?? Math.floor(Math.random() * 2 ** 31));

fc.configureGlobal({ seed: SEED });

/** How much an exploration tries: `short` in `npm test` and `npm run test:all`, `long` in `npm run test:long`. */
export function exploration(short: number, long: number): number {
  return process.env['LOCK_TESTS_LONG'] === '1' ? long : short;
}
