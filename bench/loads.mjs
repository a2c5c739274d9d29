// What the candidates do while they are measured. `acquire(key)` resolves to a function that releases the lock.
import { setTimeout as sleep } from 'node:timers/promises';
import { cpuNanoseconds, mapped } from './measure.mjs';

const IN_FLIGHT = 64;

/** One caller, one key: acquire and release cycles per second. */
export async function oneCaller(acquire, milliseconds) {
  return rate(milliseconds, 1, async () => (await acquire('one'))());
}

/** Each of `callers` callers uses its own key: cycles per second. */
export async function manyKeys(acquire, milliseconds, callers = 64) {
  return rate(milliseconds, callers, async (caller) => (await acquire(`many-${caller}`))());
}

/** One caller that acquires `count` keys in one call: calls per second, excluding the time of the releases. */
export async function inOneCall(acquire, milliseconds, count) {
  const keys = keysUpTo(count);
  return acquireRate(milliseconds, () => acquire(keys));
}

/** The same keys, acquired sequentially. */
export async function oneAfterTheOther(acquire, milliseconds, count) {
  const keys = keysUpTo(count);
  return acquireRate(milliseconds, async () => {
    const releases = [];
    for (const key of keys) releases.push(await acquire(key));
    return () => Promise.all(releases.map((release) => release()));
  });
}

/**
 * CPU time of one of `cycles` cycles, in µs. Each of `callers` callers has its own key, and all are in flight together.
 */
export async function cpuOfCycle(acquire, cycles, callers) {
  const cycle = async (caller) => (await acquire(`cpu-${caller}`))();
  const all = () => Promise.all(Array.from({ length: callers }, (_, caller) => cycle(caller)));
  return (await cpuNanoseconds(cycles / callers, all)) / callers / 1_000;
}

/** `callers` callers at the same time on one key: ms until each has held it or given up, and how many gave up. */
export async function burst(acquire, callers) {
  const startedAt = performance.now();
  let failed = 0;
  await Promise.all(
    Array.from({ length: callers }, async () => {
      const release = await acquire('burst').catch(() => undefined);
      if (release) await release();
      else failed += 1;
    }),
  );
  return { milliseconds: performance.now() - startedAt, failed };
}

/** The part of a table with the results of such bursts: ms for each round, and notes on callers that gave up. */
export function burstTable(results, callers) {
  return { rounds: mapped(results, ({ milliseconds }) => milliseconds), notes: gaveUpNotes(results, callers) };
}

/** How many callers gave up, by candidate. */
export function gaveUpNotes(results, callers) {
  const note = ([name, rounds]) => {
    const gaveUp = rounds.reduce((sum, { failed }) => sum + failed, 0);
    return [name, gaveUp > 0 ? `${gaveUp} of ${callers * rounds.length} gave up` : ''];
  };
  return Object.fromEntries(Object.entries(results).map(note));
}

/**
 * `callers` callers at the same time on one limit: ms until it is full, ms until each has held it or given up, and how
 * many gave up. Callers keep their share until the limit is full and `hold` ms have passed.
 */
export async function rampUp(acquire, { limit, callers, hold }) {
  const startedAt = performance.now();
  let entered = 0;
  let failed = 0;
  let onFull;
  const full = new Promise((resolve) => (onFull = resolve));
  await Promise.all(
    Array.from({ length: callers }, async () => {
      const release = await acquire('ramp').catch(() => undefined);
      if (release) entered += 1;
      else failed += 1;
      if (entered === limit || entered + failed === callers) onFull(performance.now() - startedAt);
      if (!release) return;
      await Promise.all([full, sleep(hold)]);
      await release();
    }),
  );
  return { full: await full, all: performance.now() - startedAt, failed };
}

/**
 * `count` keys that are all held at the same time, with 64 attempts in flight: µs to acquire and release one of them.
 */
export async function manyHeld(acquire, count) {
  const releases = [];
  const startedAt = performance.now();
  let next = 0;
  await inFlight(async () => {
    while (next < count) releases.push(await acquire(`held-${next++}`));
  });
  await inFlight(async () => {
    while (releases.length > 0) await releases.pop()();
  });
  return ((performance.now() - startedAt) * 1_000) / count;
}

const held = [];

/** Acquires `count` keys, and keeps them. */
export async function hold(acquire, count) {
  for (let index = 0; index < count; index += 100) {
    const keys = Array.from({ length: Math.min(100, count - index) }, (_, offset) => `kept-${index + offset}`);
    held.push(...(await Promise.all(keys.map((key) => acquire(key)))));
  }
}

/** The share of a core that the process uses during this time, in %. */
export async function cpuShare(_acquire, milliseconds) {
  const before = process.cpuUsage();
  await sleep(milliseconds);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 10 / milliseconds;
}

/** Releases what {@link hold} has acquired. */
export async function letGo() {
  while (held.length > 0) await Promise.all(held.splice(0, 100).map((release) => release()));
}

/**
 * `callers` callers wait for these keys, one key each, until all have held theirs or given up. Resolves to how many
 * gave up in `within` ms.
 */
export async function waitForKeys(acquire, keys, callers, within) {
  const startedAt = performance.now();
  let gaveUp = 0;
  const wait = async (_, caller) => {
    const release = await acquire(keys[caller % keys.length]).catch(() => undefined);
    if (release) await release();
    else if (performance.now() - startedAt < within) gaveUp += 1;
  };
  await Promise.all(Array.from({ length: callers }, wait));
  return gaveUp;
}

/** ms until a free lock is acquired, at most `atMost`. */
export async function acquireFree(acquire, atMost) {
  const startedAt = performance.now();
  const acquired = acquire(`free-${startedAt}`).catch(() => undefined);
  const enough = new AbortController();
  const release = await Promise.race([acquired, sleep(atMost, undefined, enough).catch(() => undefined)]);
  enough.abort();
  const took = performance.now() - startedAt;
  // Not awaited, because a library may wait for a hung node in its release, too.
  release?.().catch(() => undefined);
  return took;
}

/**
 * Callers that acquire one key again and again: how often each held it, and the longest wait in ms. A wait lasts from
 * the first attempt to the grant. A caller that gives up and tries again is still waiting, and one that never holds the
 * key has waited the whole time.
 */
export async function loop(acquire, { callers, milliseconds }) {
  const counts = Array.from({ length: callers }, () => 0);
  let longest = 0;
  const startedAt = performance.now();
  await Promise.all(
    counts.map(async (_, caller) => {
      let waitingSince = startedAt;
      while (performance.now() - startedAt < milliseconds) {
        let release;
        try {
          release = await acquire('loop');
        } catch {
          continue; // Some libraries give up after a number of attempts.
        } finally {
          longest = Math.max(longest, performance.now() - waitingSince);
        }
        // A grant after the end doesn't count: its caller may have slept through the end of the others.
        if (performance.now() - startedAt < milliseconds) counts[caller] += 1;
        await release();
        waitingSince = performance.now();
      }
    }),
  );
  return { counts, longest, seconds: milliseconds / 1_000 };
}

/**
 * The parts of tables with the results of such loops: acquisitions per second, fewest turns / most turns, and the
 * longest wait in ms.
 */
export function loopRounds(results) {
  return {
    speed: mapped(results, ({ counts, seconds }) => counts.reduce((sum, count) => sum + count, 0) / seconds),
    fairness: mapped(results, ({ counts }) => Math.min(...counts) / Math.max(...counts)),
    longest: mapped(results, ({ longest }) => longest),
  };
}

function keysUpTo(count) {
  return Array.from({ length: count }, (_, index) => `several-${String(index).padStart(3, '0')}`);
}

async function acquireRate(milliseconds, acquire) {
  let spent = 0;
  let count = 0;
  while (spent < milliseconds) {
    const startedAt = performance.now();
    const release = await acquire();
    spent += performance.now() - startedAt;
    count += 1;
    await release();
  }
  return (count / spent) * 1_000;
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

async function inFlight(work) {
  await Promise.all(Array.from({ length: IN_FLIGHT }, work));
}
