// What grows: waiters that nobody serves, locks that are held for long, waiters and keys by the thousand.
import { setTimeout as sleep } from 'node:timers/promises';
import { crowd, manyHeld } from '../loads.mjs';
import { interleave, isQuick, lasting } from '../measure.mjs';
import { by, commandsDuring, each, OURS, RAW, rivals, stop } from '../redis/rig.mjs';
import { report } from '../results.mjs';

await idleWaiters();
await heldLocks();
await moreWaiters();
await moreKeys();
await stop();

async function idleWaiters() {
  const WAITERS = 100;
  const rounds = {};
  const notes = {};
  for (const name of [RAW, OURS, ...rivals]) {
    const { take } = by[name];
    // Not renewed, so that only the waiting is counted.
    const release =
      name === OURS
        ? await take.locks.acquire('idle', { lease: '60s', renew: false }).then((lock) => () => lock.release())
        : await take('idle');
    let gaveUp = 0;
    const waiters = Array.from({ length: WAITERS }, () =>
      take('idle').then(
        (releaseLater) => releaseLater(),
        () => (gaveUp += 1),
      ),
    );
    await sleep(lasting(1_500));
    const seconds = lasting(4_000) / 1_000;
    rounds[name] = [(await commandsDuring(() => sleep(seconds * 1_000))) / seconds];
    if (gaveUp > 0) notes[name] = `${gaveUp} of ${WAITERS} gave up meanwhile`;
    await release();
    await Promise.all(waiters);
  }
  report({
    what: `${WAITERS} idle waiters on one key in one process`,
    unit: 'commands a second',
    better: 'less',
    ours: OURS,
    bar: { atMost: 1 },
    rounds,
    notes,
  });
}

/** Of the others only redis-semaphore renews what `acquire()` has taken. */
async function heldLocks() {
  const HELD = 10_000;
  const names = [OURS, 'redis-semaphore'].filter((name) => by[name]);
  const cpu = {};
  const commands = {};
  for (const name of names) {
    const { take } = by[name];
    const releases = [];
    for (let index = 0; index < HELD; index += 100) {
      const keys = Array.from({ length: 100 }, (_, offset) => `kept-${index + offset}`);
      releases.push(...(await Promise.all(keys.map((key) => take(key)))));
    }
    // Several times the pause between two renewals, which is 8 s for some: a shorter look sees one burst of them, or none.
    const milliseconds = lasting(40_000);
    const sent = await commandsDuring(async () => {
      const before = process.cpuUsage();
      await sleep(milliseconds);
      const { user, system } = process.cpuUsage(before);
      cpu[name] = [(user + system) / 10 / milliseconds];
    });
    commands[name] = [(sent * 1_000) / milliseconds];
    while (releases.length > 0) await Promise.all(releases.splice(0, 100).map((release) => release()));
  }
  const what = `${HELD.toLocaleString('en')} locks held with leases of 10 s and renewed`;
  report({ what, unit: '% of one core', better: 'less', ours: OURS, bar: { atMost: 5 }, rounds: cpu });
  report({ what, unit: 'commands a second', better: 'less', ours: OURS, rounds: commands });
}

/** The herd that wakes for each release grows with the square of the waiters; those that poll leave the lock idle. */
async function moreWaiters() {
  const points = isQuick ? [1, 10, 100] : [1, 10, 100, 1_000];
  const names = [RAW, OURS, 'redis-semaphore', 'simple-redis-mutex'].filter((name) => by[name]);
  const rounds = Object.fromEntries(names.map((name) => [name, []]));
  for (const point of points) {
    const results = await interleave(
      each(names, async (take) => ((await crowd(take, point)).milliseconds * 1_000) / point),
      // A thousand that wake for each release take a minute.
      point < 1_000 ? { rounds: 5 } : { rounds: 1, warmUp: 0 },
    );
    for (const name of names) rounds[name].push(results[name]);
  }
  report({
    what: 'Waiters at once on one key: time for each until all have had it',
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
    const results = await interleave(
      each(names, (take) => manyHeld(take, point)),
      { rounds: 5 },
    );
    for (const name of names) rounds[name].push(results[name]);
  }
  report({
    what: 'Keys held at once, 64 asks in flight: time to take and give back one',
    unit: 'µs a lock',
    better: 'less',
    ours: OURS,
    along: { name: 'keys', points },
    rounds,
  });
}
