/** One caller, one key: cycles of acquire and release per second. */
export async function oneCaller(take, milliseconds) {
  return rate(milliseconds, 1, async () => (await take('one'))());
}

/** Each of `callers` callers on a key of its own: cycles per second. */
export async function manyKeys(take, milliseconds, callers = 64) {
  return rate(milliseconds, callers, async (caller) => (await take(`many-${caller}`))());
}

/** `callers` at once on one key: ms until each has had it or given up, and how many gave up. */
export async function crowd(take, callers) {
  const startedAt = performance.now();
  let failed = 0;
  await Promise.all(
    Array.from({ length: callers }, async () => {
      const release = await take('burst').catch(() => undefined);
      if (release) await release();
      else failed += 1;
    }),
  );
  return { milliseconds: performance.now() - startedAt, failed };
}

/** What crowds of so many callers make of a table: its rounds in ms, and its notes on who gave up. */
export function crowdTable(results, callers) {
  const of = (value) => Object.fromEntries(Object.entries(results).map(([name, rounds]) => [name, value(rounds)]));
  return {
    rounds: of((rounds) => rounds.map(({ milliseconds }) => milliseconds)),
    notes: of((rounds) => {
      const gaveUp = rounds.reduce((sum, { failed }) => sum + failed, 0);
      return gaveUp > 0 ? `${gaveUp} of ${callers * rounds.length} gave up` : '';
    }),
  };
}

/** `count` keys that are all held together, 64 asks in flight: µs for taking and giving back one of them. */
export async function manyHeld(take, count) {
  const releases = [];
  const startedAt = performance.now();
  let next = 0;
  await atOnce(async () => {
    while (next < count) releases.push(await take(`held-${next++}`));
  });
  await atOnce(async () => {
    while (releases.length > 0) await releases.pop()();
  });
  return ((performance.now() - startedAt) * 1_000) / count;
}

/**
 * Callers that take one key again and again: how often each got it, and the longest wait in ms. A wait lasts from the first try to the
 * grant; whoever gives up and tries again waits on, and whoever never has a turn has waited for the whole time.
 */
export async function loop(take, { callers, milliseconds }) {
  const counts = Array.from({ length: callers }, () => 0);
  let longest = 0;
  const startedAt = performance.now();
  await Promise.all(
    counts.map(async (_, caller) => {
      let askedAt = startedAt;
      while (performance.now() - startedAt < milliseconds) {
        let release;
        try {
          release = await take('loop');
        } catch {
          continue; // Some give up after a number of tries.
        } finally {
          longest = Math.max(longest, performance.now() - askedAt);
        }
        // What ends later is the wait of those who have slept through the others' end.
        if (performance.now() - startedAt < milliseconds) counts[caller] += 1;
        await release();
        askedAt = performance.now();
      }
    }),
  );
  return { counts, longest, seconds: milliseconds / 1_000 };
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

async function atOnce(work) {
  await Promise.all(Array.from({ length: 64 }, work));
}
