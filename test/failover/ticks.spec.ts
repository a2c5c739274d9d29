import { FailoverLockProvider } from '../../lib/composite.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { SkewedFleet } from '../recipes/jobs/skewed-fleet.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { SqlBackend } from '../typeorm/sql-backend.js';
import { until } from '../until.js';

it('ticks are begun once by instances whose clocks are wrong, also around a switch', async () => {
  const [redis, sql] = await Promise.all([startRedisServer(), SqlBackend.start('mariadb')]);
  const fleet = new SkewedFleet(async () => ({
    redis: new RedisLockProvider({ url: redis.url }),
    sql: await sql.leases(),
    main: new FailoverLockProvider({ providers: ['redis', 'sql'], casStore: 'sql' }),
  }));
  try {
    await fleet.start();
    await until(() => fleet.begun.length >= 3, 'three ticks on Redis', 60_000);
    await fleet.managers[0]!.admin.switchTo('sql');
    const before = fleet.begun.length;
    await until(() => fleet.begun.length >= before + 4, 'four ticks on the other one', 60_000);
    await fleet.stop();
  } finally {
    await Promise.all([redis.stop(), sql.stop()]);
  }
  fleet.expectEachTickOnce();
}, 180_000);
