import { LockBusyError } from '../../lib/api/errors.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { silentLogger } from '../../lib/api/logger.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { VersionLockBackend } from '../../lib/providers/sql/version/version-lock-backend.js';
import { TypeOrmVersionLockProvider } from '../../lib/providers/typeorm/index.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { DistantProvider } from '../contract/memory-server.js';
import { startManager, watch } from '../core/manager-rig.js';
import { DistantCasProvider, TestFleet } from '../failover/fleet-rig.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { startZooKeeper } from '../servers/zookeeper-server.mjs';
import { SqlBackend, type SqlType } from '../typeorm/sql-backend.js';
import { until } from '../until.js';

interface Server {
  readonly provider: () => LockProvider;
  readonly stop: () => Promise<unknown>;
}

interface Row {
  readonly name: string;
  readonly start: () => Promise<Server>;
  /** Whether a busy error has the time since which the lock is held. */
  readonly knowsSince: boolean;
  /** Whether a caller reads the name while it waits. Otherwise an earlier busy error must have read it. */
  readonly namesWaiter: boolean;
  readonly kinds: readonly ('shared' | 'limited')[];
  /** Records the name, so a test does not depend on how fast that happens. */
  readonly register?: (locks: LockManager) => Promise<unknown>;
}

const leases = (type: SqlType): Row => ({
  name: `version locks on ${type}`,
  start: async () => {
    const sql = await SqlBackend.start(type);
    const options = () => ({ dataSource: sql.source(), synchronize: true, commandTimeout: '10s' }) as const;
    return { provider: () => new TypeOrmVersionLockProvider(options()), stop: () => sql.stop() };
  },
  ...{ knowsSince: true, namesWaiter: false, kinds: ['limited'] },
  register: (locks) => locks.admin.backend(VersionLockBackend).register(),
});

const ROWS: readonly Row[] = [
  {
    name: 'Redis',
    start: async () => {
      const server = await startRedisServer();
      return { provider: () => new RedisLockProvider({ url: server.url }), stop: () => server.stop() };
    },
    ...{ knowsSince: true, namesWaiter: true, kinds: ['shared', 'limited'] },
  },
  {
    name: 'ZooKeeper',
    start: async () => {
      const server = await startZooKeeper();
      const options = { connectString: server.connectString, sessionTimeout: 30_000 };
      return { provider: () => new ZooKeeperLockProvider(options), stop: () => server.stop() };
    },
    ...{ knowsSince: false, namesWaiter: false, kinds: ['shared', 'limited'] },
  },
  leases('mariadb'),
  leases('postgres'),
];

async function busy(refused: Promise<unknown>): Promise<LockBusyError> {
  const error: unknown = await refused.catch((reason: unknown) => reason);
  if (!(error instanceof LockBusyError)) throw new Error(`Expected a busy lock, but got ${String(error)}`);
  return error;
}

describe.each(ROWS)('the holder of a busy lock on $name', (row) => {
  let server: Server;
  const managers: LockManager[] = [];
  beforeAll(async () => {
    server = await row.start();
  }, 60_000);
  afterEach(async () => {
    await Promise.all(managers.splice(0).map((manager) => manager.stop()));
  });
  afterAll(() => server.stop());

  async function application(instance: string): Promise<LockManager> {
    const providers = { main: server.provider() };
    const locks = new LockManager({ providers, instance, logger: silentLogger, shutdownGrace: 0 });
    managers.push(locks);
    await locks.start();
    await row.register?.(locks);
    return locks;
  }
  const untilNamed = (locks: LockManager, key: string) =>
    until(async () => (await busy(locks.acquire(key, { wait: 0 }))).heldBy?.instance === 'shop', 'the name is read');

  it('is reported as its instance, first by 12 digits, then by name', async () => {
    const [shop, billing] = [await application('shop'), await application('billing')];
    const { holder } = await shop.acquire('digits');
    const { heldBy } = await busy(billing.acquire('digits', { wait: 0 }));
    expect(heldBy).toMatchObject({ method: null, holders: 1 });
    const digits = holder.slice(0, 12);
    // A backend that reads names for waiting callers has not read it for one that does not wait.
    expect(row.namesWaiter ? [digits] : [digits, 'shop']).toContain(heldBy?.instance);
    await untilNamed(billing, 'digits');
  });

  it('is reported by name to a caller that has waited, with the time since which it holds', async () => {
    const [shop, billing] = [await application('shop'), await application('billing')];
    const before = Date.now();
    await shop.acquire('order:42');
    const after = Date.now();
    if (!row.namesWaiter) await untilNamed(billing, 'order:42');
    const { heldBy, message } = await busy(billing.acquire('order:42', { wait: 300 }));
    expect(heldBy).toMatchObject({ instance: 'shop', method: null, holders: 1 });
    if (row.knowsSince) {
      const since = heldBy?.since?.getTime() ?? 0;
      // By the server's clock, on the same machine.
      expect(since).toBeGreaterThan(before - 100);
      expect(since).toBeLessThan(after + 100);
      expect(message).toMatch(
        /for the whole wait of \d+ ms: instance "shop" (has held it for \d+ m?s|held it \d+ m?s ago)\./,
      );
    } else {
      expect(heldBy?.since).toBeNull();
      expect(message).toMatch(/for the whole wait of \d+ ms: instance "shop" has it\./);
    }
  });

  it.each(row.kinds)('is reported as a number of holders if it is %s', async (kind) => {
    const [shop, billing, third] = [
      await application('shop'),
      await application('billing'),
      await application('third'),
    ];
    const terms = kind === 'shared' ? ({ mode: 'shared' } as const) : { limit: 2 };
    await shop.acquire(kind, terms);
    await billing.acquire(kind, terms);
    const refused = third.acquire(kind, { ...(kind === 'limited' && { limit: 2 }), wait: 0 });
    const { heldBy, message } = await busy(refused);
    expect(heldBy).toEqual({ instance: null, method: null, since: null, holders: 2 });
    expect(message).toContain(': 2 holders have it. Raise');
  });

  if (row.name === 'ZooKeeper') {
    it('is reported with its age to a caller behind another waiter', async () => {
      const [shop, billing, third] = [
        await application('shop'),
        await application('billing'),
        await application('third'),
      ];
      const held = await shop.acquire('queue');
      await untilNamed(third, 'queue');
      const next = billing.acquire('queue', { wait: 20_000 });
      await until(async () => (await shop.admin.inspect('queue'))?.waiters === 1, 'the second caller is queued');
      const refused = busy(third.acquire('queue', { wait: 300 }));
      await until(async () => (await shop.admin.inspect('queue'))?.waiters === 2, 'the third caller is queued');
      await held.release();
      await next;
      expect((await refused).message).toMatch(/for the whole wait of \d+ ms: instance "shop" held it \d+ m?s ago\./);
    });
  }
});

describe('the holder of a busy lock on a composite', () => {
  it.each([
    ['after a wait', 2_000, 'for the whole wait of 2000 ms: instance "billing" has held it for 2 s.'],
    ['without a wait', 0, 'was busy: instance "billing" has held it for 0 ms.'],
  ])('is the holder in the member that keeps the caller out, %s', async (_, wait, words) => {
    const clock = new FakeClock();
    const stores = { a: new MemoryStore(), b: new MemoryStore() };
    const start = (instance: string) =>
      startManager({
        ...{ clock, instance, default: 'all' },
        providers: {
          all: new CombinedLockProvider({ providers: ['a', 'b'] }),
          a: new MemoryLockProvider({ store: stores.a }),
          b: new MemoryLockProvider({ store: stores.b }),
        },
      });
    const [shop, billing] = [await start('shop'), await start('billing')];
    const since = new Date(clock.wallTime());
    const held = await billing.locks.acquire('order:42', { provider: 'b' });
    const refused = busy(shop.locks.acquire('order:42', { wait }));
    await clock.advance(wait + 1);
    const { message, heldBy } = await refused;
    expect(heldBy).toEqual({ instance: 'billing', method: null, since, holders: 1 });
    expect(message).toContain(words);
    await held.release();
  });

  it('is the holder in the granting member of a failover', async () => {
    const fleet = new TestFleet();
    const { clock, stores, shared } = fleet;
    const start = async (instance: string): Promise<LockManager> => {
      const providers = {
        a: new DistantProvider(stores.a),
        b: new DistantProvider(stores.b),
        record: new DistantCasProvider(stores.record, shared),
        main: new FailoverLockProvider({ providers: ['a', 'b'], casStore: 'record' }),
      };
      const locks = new LockManager({ ...{ providers, default: 'main', clock, instance }, shutdownGrace: 0 });
      await fleet.drive(locks.start());
      return locks;
    };
    const [shop, billing] = [await start('shop'), await start('billing')];
    const held = await fleet.drive(billing.acquire('order:42'));
    const since = clock.wallTime();
    await clock.advance(39_000);
    const refused = watch(shop.acquire('order:42', { wait: 2_000 }));
    await clock.advance(2_000);
    expect(refused.error).toBeInstanceOf(LockBusyError);
    const { message, heldBy } = refused.error as LockBusyError;
    expect(heldBy).toMatchObject({ instance: 'billing', method: null, holders: 1 });
    expect(Math.abs(Number(heldBy?.since) - since)).toBeLessThanOrEqual(10);
    expect(message).toContain('was busy for the whole wait of 2000 ms: instance "billing" has held it for 41 s.');
    await fleet.drive(held.release());
    await fleet.drive(Promise.all([shop.stop(), billing.stop()]));
  });
});
