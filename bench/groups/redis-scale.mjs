// Growth: waiters of a held lock, locks that are held for a long time, and thousands of waiters and keys.
import { setTimeout as sleep } from 'node:timers/promises';
import { burst, cpuShare, hold, letGo, manyHeld, waitForKeys } from '../loads.mjs';
import { interleave, isQuick, lasting, mapped } from '../measure.mjs';
import { builds } from '../builds.mjs';
import { each } from '../candidate-process.mjs';
import { candidate } from '../redis/candidates.mjs';
import { admin, by, commandsDuring, OURS, RAW, peerNames, server, stop } from '../redis/setup.mjs';
import { report } from '../results.mjs';

for (const keys of [1, 100]) await idleWaiters(keys);
await heldLocks();
await moreWaiters();
await moreKeys();
await stop();

/** Another client holds the keys, because a process knows which keys it holds itself. */
async function idleWaiters(keys) {
  const WAITERS = 100;
  const rounds = {};
  const notes = {};
  for (const name of [RAW, ...builds, ...peerNames]) {
    const holder = await candidate(name, server.port);
    const names = Array.from({ length: keys }, (_, index) => `idle-${index}`);
    // The first renewals are due after the measurement, so only the waiters' commands are counted.
    const releases = await Promise.all(names.map((key) => holder.acquire(key, { lease: '60s' })));
    const [before, counted] = [lasting(1_500), lasting(4_000)];
    const waiting = by[name].run(waitForKeys, names, WAITERS, before + counted);
    await sleep(before);
    rounds[name] = [((await commandsDuring(() => sleep(counted))) * 1_000) / counted];
    await Promise.all(releases.map((release) => release()));
    const gaveUp = await waiting;
    if (gaveUp > 0) notes[name] = `${gaveUp} of ${WAITERS} gave up meanwhile`;
    await holder.stop();
  }
  report({
    what: `${WAITERS} idle waiters on ${keys === 1 ? 'one key' : `${keys} keys`} in one process`,
    unit: 'commands a second',
    better: 'less',
    ours: OURS,
    bar: { atMost: 1 },
    rounds,
    notes,
  });
}

/** Of the other libraries, only redis-semaphore renews a lock of `acquire()`. */
async function heldLocks() {
  const HELD = 10_000;
  const names = [...builds, 'redis-semaphore'].filter((name) => by[name]);
  const cpu = {};
  const commands = {};
  const renewals = {};
  for (const name of names) {
    await by[name].run(hold, HELD);
    // Several times the interval between two renewals, which is 8 s for some. A shorter measurement would see one burst
    // of them or none.
    const milliseconds = lasting(40_000);
    const before = await renewed();
    const sent = await commandsDuring(async () => (cpu[name] = [await by[name].run(cpuShare, milliseconds)]));
    commands[name] = [(sent * 1_000) / milliseconds];
    renewals[name] = [(((await renewed()) - before) * 1_000) / milliseconds / cpu[name][0]];
    await by[name].run(letGo);
  }
  const what = `${HELD.toLocaleString('en')} locks held with leases of 10 s and renewed`;
  report({ what, unit: '% of one core', better: 'less', ours: OURS, bar: { atMost: 5 }, rounds: cpu });
  report({ what, unit: 'commands a second', better: 'less', ours: OURS, rounds: commands });
  // One library renews after a third of the lease, another after four fifths. Comparing single renewals compares the
  // same work.
  report({ what, unit: 'renewals a second for 1 % of a core', better: 'more', ours: OURS, rounds: renewals });
}

/** How many renewals the server has executed: each calls PEXPIRE exactly once, even inside a script. */
async function renewed() {
  return Number(/cmdstat_pexpire:calls=(\d+)/.exec(await admin.info('commandstats'))?.[1] ?? 0);
}

/**
 * If each release wakes all waiters, the work grows with the square of their number. If they poll, the lock is idle in
 * between.
 */
async function moreWaiters() {
  const points = isQuick ? [1, 10, 100] : [1, 10, 100, 1_000];
  const names = [RAW, ...builds, 'redis-semaphore', 'simple-redis-mutex'].filter((name) => by[name]);
  const rounds = Object.fromEntries(names.map((name) => [name, []]));
  for (const point of points) {
    const results = await interleave(
      each(by, names, burst, point),
      // A library that wakes a thousand waiters for each release needs a minute.
      point < 1_000 ? { rounds: 5 } : { rounds: 1, warmUp: 0 },
    );
    const microseconds = mapped(results, ({ milliseconds }) => (milliseconds * 1_000) / point);
    for (const name of names) rounds[name].push(microseconds[name]);
  }
  report({
    what: 'Waiters at once on one key: time per waiter until each has held it',
    unit: 'µs a waiter',
    better: 'less',
    ours: OURS,
    along: { name: 'waiters', points },
    rounds,
  });
}

async function moreKeys() {
  const points = isQuick ? [1, 100, 1_000] : [1, 100, 10_000, 100_000];
  const names = [RAW, OURS];
  const rounds = Object.fromEntries(names.map((name) => [name, []]));
  for (const point of points) {
    const results = await interleave(each(by, names, manyHeld, point), { rounds: 5 });
    for (const name of names) rounds[name].push(results[name]);
  }
  report({
    what: 'Keys held at once, 64 attempts in flight: time per acquire + release',
    unit: 'µs a lock',
    better: 'less',
    ours: OURS,
    along: { name: 'keys', points },
    rounds,
  });
}
