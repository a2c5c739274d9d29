// Locks by majority, against the libraries of that name in the same run, with their defaults. The servers run on core 0, the clients
// on core 1; candidates take turns, so that what disturbs the machine disturbs all.
import { spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { crowd, crowdTable, manyKeys, oneCaller } from '../loads.mjs';
import { interleave, lasting } from '../measure.mjs';
import { candidate, names, OURS } from '../redlock/candidates.mjs';
import { about, report, versionOf } from '../results.mjs';

const PACKAGES = { 'redlock 4': 'redlock4', 'redlock 5 beta': 'redlock' };
const rivals = names.filter((name) => name !== OURS);

const CROWD = 16;
// A library that waits for all votes would wait for as long as the node hangs.
const HUNG_AT_MOST = 2_000;

for (const size of [3, 5]) {
  const servers = await Promise.all(Array.from({ length: size }, () => startRedisServer()));
  for (const { pid } of servers) spawnSync('taskset', ['-p', '-c', '0', String(pid)]);
  const ports = servers.map(({ port }) => port);
  if (size === 3) await introduce(ports[0]);
  const by = {};
  for (const name of names) by[name] = await candidate(name, ports);
  const measured = (load, options) =>
    interleave(Object.fromEntries(names.map((name) => [name, () => load(by[name].take)])), options);
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

  compare('one caller, acquire + release', 'cycles a second', 'more', {
    rounds: await measured((take) => oneCaller(take, lasting(200)), { rounds: 11 }),
  });
  compare('64 callers on 64 keys', 'cycles a second', 'more', {
    rounds: await measured((take) => manyKeys(take, lasting(200)), { rounds: 11 }),
  });
  const crowds = await measured((take) => crowd(take, CROWD), { rounds: 7 });
  compare(`${CROWD} at once on one key, until all have had it`, 'ms', 'less', crowdTable(crowds, CROWD));

  servers[0].signal('SIGSTOP');
  const decisions = await measured(decision, { rounds: 15 });
  compare('one of them hung, until a free lock is taken', 'ms', 'less', {
    rounds: decisions,
    notes: patience(decisions),
  });
  servers[0].signal('SIGCONT');

  for (const { stop } of Object.values(by)) await stop();
  await Promise.all(servers.map((server) => server.stop()));
}
// What was still asked of the hung node keeps some of them alive.
process.exit(0);

async function introduce(port) {
  const redis = new Redis(port);
  about({
    versions: {
      redis: /redis_version:(\S+)/.exec(await redis.info('server'))[1],
      ioredis: versionOf('ioredis'),
      ...Object.fromEntries(rivals.map((name) => [name, versionOf(PACKAGES[name] ?? name, 'peers')])),
    },
    settings: 'redis-server without persistence, one for each node; leases of 10 s; every library with its defaults',
  });
  redis.disconnect();
}

/** ms until a free lock is taken, at most HUNG_AT_MOST. */
async function decision(take) {
  const startedAt = performance.now();
  const taken = take(`hung-${startedAt}`).catch(() => undefined);
  const enough = new AbortController();
  const release = await Promise.race([taken, sleep(HUNG_AT_MOST, undefined, enough).catch(() => undefined)]);
  enough.abort();
  const took = performance.now() - startedAt;
  // Not awaited: a library may wait for the hung node to release as well.
  release?.().catch(() => undefined);
  await sleep(5);
  return took;
}

function patience(decisions) {
  const isTooLong = (took) => took >= HUNG_AT_MOST;
  return Object.fromEntries(
    Object.entries(decisions).map(([name, all]) => [
      name,
      all.some(isTooLong) ? `not taken in ${HUNG_AT_MOST} ms` : '',
    ]),
  );
}
