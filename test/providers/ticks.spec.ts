import { FailoverLockProvider } from '../../lib/composite.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { deployOtherSchedule, SkewedFleet } from '../recipes/jobs/skewed-fleet.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { startZooKeeper } from '../servers/zookeeper-server.mjs';
import { SqlBackend, type SqlType } from '../typeorm/sql-backend.js';
import { until } from '../until.js';

/** Longer than three ticks, so three are due while the server is down. */
const OUTAGE = 3_500;

const pastOutage = async (): Promise<void> => {
  const end = Date.now() + OUTAGE;
  await until(() => Date.now() > end, 'three ticks are due', 60_000);
};

interface Server {
  /** The providers of one instance, by kind of lock. */
  readonly kinds: Readonly<Record<string, () => Promise<LockProvider>>>;
  /** Takes the server down for three ticks. */
  readonly outage: (begun: readonly number[]) => Promise<void>;
  readonly stop: () => Promise<unknown>;
}

async function startRedis(): Promise<Server> {
  const server = await startRedisServer();
  return {
    kinds: { redis: async () => new RedisLockProvider({ url: server.url, commandTimeout: 500 }) },
    async outage(begun) {
      server.signal('SIGSTOP');
      try {
        const before = begun.length;
        await pastOutage();
        // A run may have been in flight.
        expect(begun.length).toBeLessThanOrEqual(before + 1);
      } finally {
        server.signal('SIGCONT');
      }
    },
    stop: () => server.stop(),
  };
}

async function startZk(): Promise<Server> {
  const server = await startZooKeeper();
  const options = { connectString: server.connectString, sessionTimeout: 20_000 };
  return {
    kinds: { zookeeper: async () => new ZooKeeperLockProvider(options) },
    async outage() {
      await server.kill();
      await pastOutage();
      await server.restart();
    },
    stop: () => server.stop(),
  };
}

async function startSql(type: SqlType): Promise<Server> {
  const sql = await SqlBackend.start(type);
  return {
    kinds: { version: () => sql.leases(), row: () => sql.rows(), advisory: () => sql.advisory() },
    outage: () => sql.server.crash({ downFor: OUTAGE }),
    stop: () => sql.stop(),
  };
}

describe.each<[string, readonly string[], () => Promise<Server>]>([
  ['Redis', ['redis'], startRedis],
  ['ZooKeeper', ['zookeeper'], startZk],
  ['MariaDB', ['version', 'row', 'advisory'], () => startSql('mariadb')],
  ['Postgres', ['version', 'row', 'advisory'], () => startSql('postgres')],
])('ticks on %s', (_, kinds, start) => {
  const [first = ''] = kinds;
  let server: Server;
  const providerOf = (kind: string) => server.kinds[kind]!();
  beforeAll(async () => {
    server = await start();
  }, 60_000);
  afterAll(() => server.stop());

  it.each(kinds)(
    'run once on instances whose clocks are wrong, with %s locks',
    async (kind) => {
      const fleet = new SkewedFleet(async () => ({ main: await providerOf(kind) }));
      await fleet.start();
      await until(() => fleet.begun.length >= 5, 'five ticks have begun', 60_000);
      await fleet.stop();
      fleet.expectEachTickOnce();
    },
    120_000,
  );

  it(
    'are not repeated after a deployment that changes the schedule',
    () => deployOtherSchedule(() => providerOf(first)),
    120_000,
  );

  it('run once around an outage of three ticks, and continue after it', async () => {
    const fleet = new SkewedFleet(async () => ({ main: await providerOf(first) }), { catchUp: '1m' });
    await fleet.start();
    await until(() => fleet.begun.length >= 3, 'three ticks have begun', 60_000);
    await server.outage(fleet.begun);
    const before = fleet.begun.length;
    await until(() => fleet.begun.length >= before + 3, 'three ticks have begun after the outage', 60_000);
    await fleet.stop();
    fleet.expectEachTickOnce();
  }, 180_000);
});

it('ticks of a failover run once on instances whose clocks are wrong, even around a switch', async () => {
  const [redis, sql] = await Promise.all([startRedisServer(), SqlBackend.start('mariadb')]);
  const fleet = new SkewedFleet(async () => ({
    redis: new RedisLockProvider({ url: redis.url }),
    sql: await sql.leases(),
    main: new FailoverLockProvider({ providers: ['redis', 'sql'], casStore: 'sql' }),
  }));
  try {
    await fleet.start();
    await until(() => fleet.begun.length >= 3, 'three ticks have begun on Redis', 60_000);
    await fleet.managers[0]!.admin.switchTo('sql');
    const before = fleet.begun.length;
    await until(() => fleet.begun.length >= before + 4, 'four ticks have begun on the other member', 60_000);
    await fleet.stop();
  } finally {
    await Promise.all([redis.stop(), sql.stop()]);
  }
  fleet.expectEachTickOnce();
}, 180_000);
