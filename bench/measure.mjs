/** The middle of the values: one slow round on a shared machine does not move it. */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

/**
 * Runs the candidates in turn, round by round, so that whatever disturbs the machine disturbs all of them. Without forced
 * collections between the rounds: these throw compiled code away, and each round would measure the compiler.
 */
export async function interleave(candidates, { rounds }) {
  const results = Object.fromEntries(Object.keys(candidates).map((name) => [name, []]));
  for (let round = -1; round < rounds; round += 1) {
    for (const [name, run] of Object.entries(candidates)) {
      const result = await run();
      // The first round is for the compiler.
      if (round >= 0) results[name].push(result);
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
