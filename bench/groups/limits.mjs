// Limited locks on Redis, beside the Semaphore of redis-semaphore with its defaults, in the same run. Both take turns, so that other load
// of the machine affects both. The server runs on core 0, the clients on core 1.
import { Redis } from 'ioredis';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { builds, load, OURS } from '../builds.mjs';
import { gaveUpNotes, loop, loopRounds, oneCaller, rampUp } from '../loads.mjs';
import { interleave, lasting, mapped } from '../measure.mjs';
import { pinned } from '../pinned.mjs';
import { ensurePeers } from '../peers/ensure-peers.mjs';
import { reportLoops } from '../report-loops.mjs';
import { about, report, versionOf } from '../results.mjs';

const PEER = 'redis-semaphore';
const LEASE = 10_000;
const LIMIT = 4;
const CALLERS = 16;
const CROWD = { limit: 100, callers: 1_000, hold: 5 };

const server = pinned(await startRedisServer());
const clients = [];
const managers = [];
const makers = Object.fromEntries(builds.map((build) => [build, () => ours(build)]));
if (ensurePeers()) makers[PEER] = peer;
/** By candidate, what makes the function that acquires a share of a limit. */
const by = {};
for (const [name, make] of Object.entries(makers)) by[name] = await make();

about({
  versions: { ioredis: versionOf('ioredis'), ...(by[PEER] && { [PEER]: versionOf(PEER, 'peers') }) },
  settings: `redis-server without persistence; a limit of ${LIMIT}, leases of 10 s; the Semaphore has its defaults: it polls every 10 ms while it waits`,
});

report({
  what: `One caller of a limit of ${LIMIT}, acquire + release`,
  unit: 'cycles a second',
  better: 'more',
  ours: OURS,
  bar: { atLeast: 0.9, of: 'best' },
  rounds: await interleave(
    each((acquire) => oneCaller(acquire, lasting(100))),
    { rounds: 31 },
  ),
});

const loops = await interleave(
  each((acquire) => loop(acquire, { callers: CALLERS, milliseconds: lasting(1_000) })),
  { rounds: 5 },
);
reportLoops(`${CALLERS} waiters looping on a limit of ${LIMIT} in one process`, loopRounds(loops), {
  speed: { bar: { atLeast: 1.5, of: 'best' } },
  fairness: { bar: { atLeast: 0.95 } },
});

const ramps = await interleave(
  each((acquire) => rampUp(acquire, CROWD), CROWD.limit),
  { rounds: 5, warmUp: 0 },
);
const crowd = `${CROWD.callers.toLocaleString('en')} callers at once on a limit of ${CROWD.limit}`;
for (const [part, words] of [
  ['full', `until ${CROWD.limit} hold it`],
  ['all', `until each has held it for ${CROWD.hold} ms`],
]) {
  report({
    what: `${crowd}, ${words}`,
    unit: 'ms',
    better: 'less',
    ours: OURS,
    rounds: mapped(ramps, (ramp) => ramp[part]),
    notes: gaveUpNotes(ramps, CROWD.callers),
  });
}

for (const locks of managers) await locks.stop();
for (const client of clients) client.disconnect();
await server.stop();

async function ours(build) {
  const { LockManager, RedisLockProvider, namespace } = await load(build, 'redis');
  const client = clientOf({ lazyConnect: true });
  const locks = new LockManager({ providers: { redis: new RedisLockProvider({ client }) }, namespace });
  await locks.start();
  managers.push(locks);
  return (limit) => async (key) => {
    const lock = await locks.acquire(key, { limit, wait: '60s', lease: LEASE });
    return () => lock.release();
  };
}

async function peer() {
  const { semaphoreOf } = await import('../peers/adapters.mjs');
  const client = clientOf();
  return (limit) => semaphoreOf(client, limit);
}

function clientOf(options) {
  const client = new Redis(server.port, options);
  clients.push(client);
  return client;
}

function each(measure, limit = LIMIT) {
  return Object.fromEntries(Object.entries(by).map(([name, acquireOf]) => [name, () => measure(acquireOf(limit))]));
}
