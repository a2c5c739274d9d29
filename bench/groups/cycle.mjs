// What one lock cycle costs in our own code: the time and memory of `LockService.withLock` on a stand-in for Redis, and
// its time on the memory provider. The bars are relative to a baseline. Both builds take turns, each time in new
// processes, because no two processes compile the same code in the same way.
import { BASELINE, builds, OURS } from '../builds.mjs';
import { costOfCycle } from '../cycle/cost-of-cycle.mjs';
import { interleave, mapped } from '../measure.mjs';
import { about, report, reportAgainstBaseline } from '../results.mjs';

const ON_REDIS = 'withLock on a stand-in for Redis';

about({
  versions: {},
  settings:
    'one caller; the stand-in for ioredis has no network, and its time is subtracted, but not its memory of about 3 kB a cycle; each round is a ' +
    'new process, and its value is the median of its cycles',
});

const results = await interleave(Object.fromEntries(builds.map((build) => [build, () => measure(build)])), {
  rounds: 15,
  warmUp: 0,
  budget: Infinity,
});
for (const [part, what, unit, bar] of [
  ['warm', `${ON_REDIS}, warm`, 'µs', { atMost: 0.8 }],
  ['evicted', `${ON_REDIS}, caches evicted before each reply`, 'µs', { atMost: 0.85 }],
  ['first', `${ON_REDIS}, the first 400 of a process`, 'µs'],
  ['bytes', `${ON_REDIS}, allocated`, 'bytes', { atMost: 0.7 }],
  ['memory', 'withLock on the memory provider, warm', 'µs of CPU time', { atMost: 0.65 }],
]) {
  const table = { what, unit, better: 'less', ours: OURS, rounds: mapped(results, (result) => result[part]) };
  if (builds.includes(BASELINE)) reportAgainstBaseline(table, bar);
  else report(table);
}

async function measure(build) {
  return { ...(await costOfCycle(build, 'redis')), ...(await costOfCycle(build, 'memory')) };
}
