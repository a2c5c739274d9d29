/** The middle of the values: one slow round on a shared machine does not move it. */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

/** Runs the candidates in turn, round by round, so that whatever disturbs the machine disturbs all of them. */
export async function interleave(candidates, { rounds }) {
  const results = Object.fromEntries(Object.keys(candidates).map((name) => [name, []]));
  for (let round = -1; round < rounds; round += 1) {
    for (const [name, run] of Object.entries(candidates)) {
      globalThis.gc?.();
      const result = await run();
      // The first round is for the compiler.
      if (round >= 0) results[name].push(result);
    }
  }
  return results;
}

/** Nanoseconds for one of `calls` calls, one after the other. */
export async function nanoseconds(calls, call) {
  const startedAt = process.hrtime.bigint();
  for (let index = 0; index < calls; index += 1) await call();
  return Number(process.hrtime.bigint() - startedAt) / calls;
}
