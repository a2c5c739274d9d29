/** A smoke test of the benchmark itself: everything runs once and shortly, and nothing is kept. */
export const isQuick = process.env.BENCH_QUICK === '1';

/** So many ms, or a tenth of it in a quick run. */
export function lasting(milliseconds) {
  return isQuick ? milliseconds / 10 : milliseconds;
}

/** The middle of the values: one slow round on a shared machine does not move it. */
export function median(values) {
  return quantile(values, 0.5);
}

/** The value below which `share` of the values lie, interpolated between the two nearest. */
export function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * share;
  const below = sorted[Math.floor(at)];
  return below + (sorted[Math.ceil(at)] - below) * (at % 1);
}

// Some of the others need seconds for what takes the rest milliseconds.
const ENOUGH_ROUNDS = 3;
// After a fifth of a second of a load, the compiler still had so much to do that the last rounds were up to 2.5 times faster than the first.
const WARM_UP = 1_500;

/**
 * Runs the candidates in turn, round by round, so that whatever disturbs the machine disturbs all of them. Without forced
 * collections between the rounds: these throw compiled code away, and each round would measure the compiler.
 *
 * @param {object} options
 * @param options.warmUp each candidate runs for so many ms before the rounds that count, for the compiler
 * @param options.budget a candidate that has used so many ms gets no more than three rounds
 */
export async function interleave(candidates, { rounds, warmUp = lasting(WARM_UP), budget = 8_000 }) {
  const names = Object.keys(candidates);
  const results = Object.fromEntries(names.map((name) => [name, []]));
  const spent = Object.fromEntries(names.map((name) => [name, 0]));
  const timed = async (name) => {
    const startedAt = performance.now();
    const result = await candidates[name]();
    spent[name] += performance.now() - startedAt;
    return result;
  };
  // In turn here too: code that all of them use is compiled for all of them.
  const isCold = (name) => spent[name] < warmUp;
  while (names.some(isCold)) for (const name of names.filter(isCold)) await timed(name);
  for (let round = 0; round < (isQuick ? 1 : rounds); round += 1) {
    for (const name of names) {
      if (spent[name] > budget && results[name].length >= ENOUGH_ROUNDS) continue;
      results[name].push(await timed(name));
    }
  }
  return results;
}

/**
 * Nanoseconds of CPU time for one of `calls` calls, one after the other: for work that waits for nothing, where another
 * process on the same core would count in the time of the clock.
 */
export async function cpuNanoseconds(calls, call) {
  const before = process.cpuUsage();
  for (let index = 0; index < calls; index += 1) await call();
  const { user, system } = process.cpuUsage(before);
  return ((user + system) * 1000) / calls;
}
