// What failover costs while nothing fails: ratios to its provider alone in the same run. Redis and the casStore in
// MariaDB run on core 0, the clients on core 1. Candidates take turns, so that other load on the machine affects both.
import { Redis } from 'ioredis';
import { DataSource } from 'typeorm';
import { ensureServers } from '../../scripts/ensure-servers.mjs';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { startMariaDb } from '../../test/servers/sql-server.mjs';
import { builds, load, OURS } from '../builds.mjs';
import { manyKeys } from '../loads.mjs';
import { interleave, lasting } from '../measure.mjs';
import { pinned } from '../pinned.mjs';
import { about, report, versionOf } from '../results.mjs';

const BARE = 'redis alone';
const FAILOVER = 'failover';

ensureServers(['redis-server', 'mariadbd']);

const redis = await startRedisServer();
const mariadb = await startMariaDb();
[redis, mariadb].forEach(pinned);
const dataSource = await new DataSource({ type: 'mariadb', url: mariadb.url }).initialize();

const by = {};
for (const build of builds) {
  const { bare, failover } = namesIn(build);
  const { FailoverLockProvider, LockManager, namespace, RedisLockProvider, TypeOrmRowLockProvider } = await load(
    build,
    'composite',
    'redis',
    'typeorm',
  );
  const member = () => new RedisLockProvider({ url: redis.url });
  // Each has its own LockManager, so that they share no queue, watchdog, or connection.
  by[bare] = await candidate(LockManager, { main: member() }, `${namespace}-bare`);
  by[failover] = await candidate(
    LockManager,
    {
      redis: member(),
      mysql: new TypeOrmRowLockProvider({ dataSource, synchronize: true, fencing: true }),
      main: new FailoverLockProvider({ providers: ['redis', 'mysql'], casStore: 'mysql' }),
    },
    `${namespace}-failover`,
  );
}

const admin = new Redis(redis.port);
const [{ version }] = await dataSource.query('SELECT VERSION() AS version');
about({
  versions: {
    redis: /redis_version:(\S+)/.exec(await admin.info('server'))[1],
    mariadb: version,
    ioredis: versionOf('ioredis'),
  },
  settings:
    'redis-server without persistence as the preferred provider, MariaDB as the next provider and as the casStore; ' +
    'all options have their defaults: a window of 6 s',
});
admin.disconnect();

const measured = (name) => () => manyKeys(by[name].acquire, lasting(300));
const rounds = await interleave(Object.fromEntries(Object.keys(by).map((name) => [name, measured(name)])), {
  rounds: 25,
  budget: Infinity,
});
for (const build of builds) {
  const { bare, failover } = namesIn(build);
  report({
    what: `64 callers on 64 keys${build === OURS ? '' : `, ${build}`}`,
    unit: 'cycles a second',
    better: 'more',
    ours: failover,
    base: bare,
    ...(build === OURS && { bar: { atLeast: 0.95, of: 'base' } }),
    rounds: { [bare]: rounds[bare], [failover]: rounds[failover] },
  });
}

for (const { stop } of Object.values(by)) await stop();
await dataSource.destroy();
await redis.stop();
await mariadb.stop();

/** The names of a build's two candidates. */
function namesIn(build) {
  const prefix = build === OURS ? '' : `${build}, `;
  return { bare: `${prefix}${BARE}`, failover: `${prefix}${FAILOVER}` };
}

async function candidate(LockManager, providers, namespace) {
  const logger = { debug: () => undefined, warn: () => undefined, error: console.error };
  const locks = new LockManager({ providers, default: 'main', namespace, logger });
  await locks.start();
  const acquire = async (key) => {
    const lock = await locks.acquire(key, { wait: '60s' });
    return () => lock.release();
  };
  return { acquire, stop: () => locks.stop() };
}
