/** How much an exploration tries: `short` in `npm test`, `long` in `npm run test:long`. */
export function exploration(short: number, long: number): number {
  return process.env['LOCK_TESTS_LONG'] === '1' ? long : short;
}
