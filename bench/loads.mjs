/** One caller, one key: cycles of acquire and release per second. */
export async function oneCaller(take, milliseconds) {
  return rate(milliseconds, 1, async () => (await take('one'))());
}

/** Each of `callers` callers on a key of its own: cycles per second. */
export async function manyKeys(take, milliseconds, callers = 64) {
  return rate(milliseconds, callers, async (caller) => (await take(`many-${caller}`))());
}

/** 16 callers at once on one key: ms until all have had it. */
export async function burst(take) {
  const startedAt = performance.now();
  await Promise.all(Array.from({ length: 16 }, async () => (await take('burst'))()));
  return performance.now() - startedAt;
}

/** Callers that take one key again and again: how often each got it, and the longest wait in ms. */
export async function loop(take, { callers, milliseconds }) {
  const counts = Array.from({ length: callers }, () => 0);
  let longest = 0;
  const startedAt = performance.now();
  await Promise.all(
    counts.map(async (_, caller) => {
      while (performance.now() - startedAt < milliseconds) {
        const askedAt = performance.now();
        let release;
        try {
          release = await take('loop');
        } catch {
          continue; // Some give up after a number of tries: that is a longer wait.
        } finally {
          longest = Math.max(longest, performance.now() - askedAt);
        }
        counts[caller] += 1;
        await release();
      }
    }),
  );
  return { counts, longest, seconds: (performance.now() - startedAt) / 1_000 };
}

async function rate(milliseconds, callers, cycle) {
  const startedAt = performance.now();
  let cycles = 0;
  await Promise.all(
    Array.from({ length: callers }, async (_, caller) => {
      while (performance.now() - startedAt < milliseconds) {
        await cycle(caller);
        cycles += 1;
      }
    }),
  );
  return (cycles / (performance.now() - startedAt)) * 1_000;
}
