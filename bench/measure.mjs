import { getHeapStatistics } from 'node:v8';

/** A smoke test of the benchmark itself: everything runs briefly and once, and no result is saved. */
export const isQuick = process.env.BENCH_QUICK === '1';

/** This many ms, or a tenth of it in a quick run. */
export function lasting(milliseconds) {
  return isQuick ? milliseconds / 10 : milliseconds;
}

/** One slow round on a shared machine doesn't move the median. */
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

// Some libraries take seconds where others take milliseconds.
const ENOUGH_ROUNDS = 3;
// With a warm-up of 0.2 s, the compiler was still so busy that the last rounds were up to 2.5 times faster than the
// first.
const WARM_UP = 1_500;

/**
 * Runs the candidates in turn, round by round, so that other load on the machine affects all of them. It forces no
 * garbage collection between the rounds, because that discards compiled code, and each round would measure the
 * compiler.
 *
 * @param {object} options
 * @param options.warmUp each candidate runs for this many ms before the rounds that count, so that its code is compiled
 * @param options.budget a candidate that has used this many ms gets at most three rounds
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
  // Take turns here, too, because code shared by candidates of one process is compiled for all of them.
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

/** One value for each round, by candidate. */
export function mapped(results, value) {
  return Object.fromEntries(Object.entries(results).map(([name, rounds]) => [name, rounds.map(value)]));
}

/**
 * CPU time of one of `calls` sequential calls, in nanoseconds. For work that doesn't wait, it is more accurate than the
 * wall clock, which would also count other processes on the same core.
 */
export async function cpuNanoseconds(calls, call) {
  const before = process.cpuUsage();
  for (let index = 0; index < calls; index += 1) await call();
  const { user, system } = process.cpuUsage(before);
  return ((user + system) * 1000) / calls;
}

const CALLS_A_READING = 100;
const READINGS = 41;

/**
 * The bytes that one of many sequential calls allocates: the median growth of the heap, because garbage collection
 * disturbs few of the readings. Warm the calls up first, because the compiled code is on the heap, too.
 */
export async function allocatedBytes(call) {
  const readings = [];
  for (let reading = 0; reading < READINGS; reading += 1) {
    const before = getHeapStatistics().used_heap_size;
    for (let index = 0; index < CALLS_A_READING; index += 1) await call();
    readings.push((getHeapStatistics().used_heap_size - before) / CALLS_A_READING);
  }
  return median(readings);
}
