// 20 free keys in one call, compared with 20 sequential calls. Servers run on core 0, the clients on core 1, and
// candidates take turns.
import { builds, load, OURS } from '../builds.mjs';
import { each, startEach } from '../candidate-process.mjs';
import { inOneCall, oneAfterTheOther, oneCaller } from '../loads.mjs';
import { interleave, lasting } from '../measure.mjs';
import { pinned } from '../pinned.mjs';
import { about, report, reportAgainstBaseline, versionOf } from '../results.mjs';
import { ensureServers } from '../../scripts/ensure-servers.mjs';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { startMariaDb, startPostgres } from '../../test/servers/sql-server.mjs';

const KEYS = 20;
const ONE_BY_ONE = 'one after the other';
const DATABASES = { MariaDB: startMariaDb, Postgres: startPostgres };

ensureServers(['redis-server', 'mariadbd', 'postgres']);
about({
  versions: { ioredis: versionOf('ioredis'), mysql2: versionOf('mysql2'), pg: versionOf('pg') },
  settings: 'One server with its defaults, and one caller. The time of a release does not count',
});

const redis = pinned(await startRedisServer());
const by = await startEach(new URL('../redis/candidates.mjs', import.meta.url), builds, redis.port);
const loads = (names, load, ...args) => each(by, names, load, lasting(200), ...args);
await measure(
  'Redis',
  {
    [ONE_BY_ONE]: loads([OURS], oneAfterTheOther, KEYS)[OURS],
    ...loads(builds, inOneCall, KEYS),
  },
  { ofOneByOne: 5, ofBaseline: 8 },
);
await alone('Redis', loads(builds, oneCaller));
for (const candidate of Object.values(by)) await candidate.stop();
await redis.stop();

for (const [name, start] of Object.entries(DATABASES)) {
  const server = pinned(await start());
  const managers = {};
  for (const build of builds) managers[build] = await managerOf(build, server.url);
  const acquireBy = (build) => async (keys) => {
    const lock = await managers[build].acquire(keys, { lease: 10_000 });
    return () => lock.release();
  };
  const ofBuilds = (load, ...args) =>
    Object.fromEntries(builds.map((build) => [build, () => load(acquireBy(build), lasting(200), ...args)]));
  await measure(
    `${name}, version lock`,
    {
      [ONE_BY_ONE]: () => oneAfterTheOther(acquireBy(OURS), lasting(200), KEYS),
      ...ofBuilds(inOneCall, KEYS),
    },
    { ofOneByOne: 1.2, ofBaseline: 1.5 },
  );
  await alone(`${name}, version lock`, ofBuilds(oneCaller));
  for (const locks of Object.values(managers)) await locks.stop();
  await server.stop();
}

/** How much faster one call is than a call for each key, and than the baseline's. */
async function measure(where, candidates, { ofOneByOne, ofBaseline }) {
  const table = {
    what: `${where}: ${KEYS} free keys, acquired`,
    unit: 'times a second',
    better: 'more',
    ours: OURS,
    base: ONE_BY_ONE,
    bar: { atLeast: ofOneByOne, of: 'base' },
    rounds: await interleave(candidates, { rounds: 15 }),
  };
  report(table);
  reportAgainstBaseline(table, { atLeast: ofBaseline });
}

/** A lock of one key must not pay for this. */
async function alone(where, candidates) {
  if (builds.length === 1) return;
  reportAgainstBaseline({
    what: `${where}: one key`,
    unit: 'cycles a second',
    better: 'more',
    rounds: await interleave(candidates, { rounds: 25 }),
  });
}

async function managerOf(build, url) {
  const { LockManager, SqlVersionLockProvider, namespace } = await load(build, 'sql');
  const provider = new SqlVersionLockProvider({ url, synchronize: true });
  const locks = new LockManager({ providers: { provider }, namespace });
  await locks.start();
  return locks;
}
