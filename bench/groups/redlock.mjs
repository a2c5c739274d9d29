// Redlock, compared with the Redlock libraries in the same run, with their defaults. The servers run on core 0, the
// clients on core 1. Each candidate has its own process, and they take turns, so that other load on the machine affects
// all of them.
import { Redis } from 'ioredis';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { builds, OURS } from '../builds.mjs';
import { each, startEach } from '../candidate-process.mjs';
import { acquireFree, burst, burstTable, loop, loopRounds, manyKeys, oneCaller } from '../loads.mjs';
import { interleave, lasting } from '../measure.mjs';
import { pinned } from '../pinned.mjs';
import { IN_MEMORY, peers, SCRIPTS } from '../redlock/candidates.mjs';
import { reportLoops } from '../report-loops.mjs';
import { about, report, versionOf } from '../results.mjs';

const PACKAGES = { 'redlock 4': 'redlock4', 'redlock 5 beta': 'redlock' };
const peerNames = Object.keys(await peers());
const names = [...builds, ...peerNames];
/** Includes what this library sends, sent by bare ioredis. */
const withScripts = [...names, SCRIPTS];

const CANDIDATES = new URL('../redlock/candidates.mjs', import.meta.url);
const BURST = 16;
const LOOPERS = 16;
// A library that waits for all votes would wait for as long as the node hangs.
const HUNG_AT_MOST = 2_000;

for (const size of [3, 5]) {
  const servers = await Promise.all(Array.from({ length: size }, () => startRedisServer()));
  servers.forEach(pinned);
  const ports = servers.map(({ port }) => port);
  if (size === 3) await introduce(ports[0]);
  const by = await startEach(CANDIDATES, [...withScripts, IN_MEMORY], ports);
  const compare = (what, unit, better, { rounds, notes }) =>
    report({
      what: `${size} nodes: ${what}`,
      unit,
      better,
      ours: OURS,
      bar: { atLeast: 1, of: 'best' },
      rounds,
      notes,
    });

  const alone = await interleave(each(by, withScripts, oneCaller, lasting(100)), { rounds: 31 });
  const { [SCRIPTS]: sameScripts, ...others } = alone;
  compare('one caller, acquire + release', 'cycles a second', 'more', { rounds: others });
  report({
    what: `${size} nodes: one caller, beside the same scripts sent by bare ioredis`,
    unit: 'cycles a second',
    better: 'more',
    ours: OURS,
    base: SCRIPTS,
    bar: { atLeast: 0.9, of: 'base' },
    rounds: { [SCRIPTS]: sameScripts, [OURS]: alone[OURS] },
  });
  compare('64 callers on 64 keys', 'cycles a second', 'more', {
    rounds: await interleave(each(by, names, manyKeys, lasting(200)), { rounds: 11 }),
  });
  const bursts = await interleave(each(by, names, burst, BURST), { rounds: 7 });
  compare(`${BURST} callers at once on one key, until each has held it`, 'ms', 'less', burstTable(bursts, BURST));

  if (size === 3) await hotKey(by);

  const compareWithScripts = (what, rounds) =>
    report({
      what: `${size} nodes: ${what}, beside the same scripts sent by bare ioredis`,
      unit: 'ms',
      better: 'less',
      ours: OURS,
      base: SCRIPTS,
      rounds,
    });
  // The processor's caches contain nothing of it, as after a pause: what a loop executes in 4 µs takes fifty times as
  // long.
  const parts = [SCRIPTS, IN_MEMORY, OURS];
  compareWithScripts('none hung', await interleave(each(by, parts, acquireFree, HUNG_AT_MOST), { rounds: 61 }));

  servers[0].signal('SIGSTOP');
  const times = await interleave(each(by, withScripts, acquireFree, HUNG_AT_MOST), { rounds: 61 });
  const { [SCRIPTS]: scriptTimes, ...otherTimes } = times;
  compare('one node hung, until a free lock is acquired', 'ms', 'less', {
    rounds: otherTimes,
    notes: gaveUp(otherTimes),
  });
  compareWithScripts('one node hung', { [SCRIPTS]: scriptTimes, [OURS]: times[OURS] });
  servers[0].signal('SIGCONT');

  for (const candidate of Object.values(by)) await candidate.stop();
  await Promise.all(servers.map((server) => server.stop()));
}

/** Waiters of one process that acquire one key again and again. */
async function hotKey(by) {
  const load = each(by, names, loop, { callers: LOOPERS, milliseconds: lasting(1_000) });
  const rounds = loopRounds(await interleave(load, { rounds: 5 }));
  reportLoops(`3 nodes: ${LOOPERS} waiters looping on one key in one process`, rounds, {
    overBaseline: { atLeast: 3 },
  });
}

async function introduce(port) {
  const redis = new Redis(port);
  about({
    versions: {
      redis: /redis_version:(\S+)/.exec(await redis.info('server'))[1],
      ioredis: versionOf('ioredis'),
      ...Object.fromEntries(peerNames.map((name) => [name, versionOf(PACKAGES[name] ?? name, 'peers')])),
    },
    settings: 'redis-server without persistence, one for each node; leases of 10 s; every library has its defaults',
  });
  redis.disconnect();
}

function gaveUp(times) {
  const isTooLong = (took) => took >= HUNG_AT_MOST;
  return Object.fromEntries(
    Object.entries(times).map(([name, all]) => [name, all.some(isTooLong) ? `not acquired in ${HUNG_AT_MOST} ms` : '']),
  );
}
