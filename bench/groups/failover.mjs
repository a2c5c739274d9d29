// What failover costs while nothing fails: ratios against its provider alone in the same run. Redis and the casStore in MariaDB run
// on core 0, the clients on core 1. Candidates take turns, so that other load of the machine affects both.
import { spawnSync } from 'node:child_process';
import { Redis } from 'ioredis';
import { FailoverProvider, LockManager } from 'nestjs-distributed-lock';
import { RedisLockProvider } from 'nestjs-distributed-lock/redis';
import { TypeOrmRowLockProvider } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';
import { ensureServers } from '../../scripts/ensure-servers.mjs';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { startMariaDb } from '../../test/servers/sql-server.mjs';
import { manyKeys } from '../loads.mjs';
import { interleave, lasting } from '../measure.mjs';
import { about, report, versionOf } from '../results.mjs';

const BARE = 'redis alone';
const OURS = 'failover';

ensureServers(['redis-server', 'mariadbd']);

const redis = await startRedisServer();
const mariadb = await startMariaDb();
for (const { pid } of [redis, mariadb]) spawnSync('taskset', ['-a', '-p', '-c', '0', String(pid)]);
const dataSource = await new DataSource({ type: 'mariadb', url: mariadb.url }).initialize();

const member = () => new RedisLockProvider({ url: redis.url });
const by = {
  // Each has a LockManager of its own, so that they share no queue, watchdog or connection.
  [BARE]: await candidate({ main: member() }, 'bare'),
  [OURS]: await candidate(
    {
      redis: member(),
      mysql: new TypeOrmRowLockProvider({ dataSource, synchronize: true, fencing: true }),
      main: new FailoverProvider({ providers: ['redis', 'mysql'], casStore: 'mysql' }),
    },
    'failover',
  ),
};

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

const load = (name) => () => manyKeys(by[name].acquire, lasting(300));
report({
  what: '64 callers on 64 keys',
  unit: 'cycles a second',
  better: 'more',
  ours: OURS,
  base: BARE,
  bar: { atLeast: 0.95, of: 'base' },
  rounds: await interleave({ [BARE]: load(BARE), [OURS]: load(OURS) }, { rounds: 25, budget: Infinity }),
});

for (const { stop } of Object.values(by)) await stop();
await dataSource.destroy();
await redis.stop();
await mariadb.stop();

async function candidate(providers, namespace) {
  const logger = { debug: () => undefined, warn: () => undefined, error: console.error };
  const locks = new LockManager({ providers, default: 'main', namespace, logger });
  await locks.start();
  const acquire = async (key) => {
    const lock = await locks.acquire(key, { wait: '60s' });
    return () => lock.release();
  };
  return { acquire, stop: () => locks.stop() };
}
