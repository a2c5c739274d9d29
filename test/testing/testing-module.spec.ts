import { AssertionError } from 'node:assert';
import { Injectable, Module } from '@nestjs/common';
import { Cron, ScheduleModule } from '@nestjs/schedule';
import { Test, type TestingModule, type TestingModuleBuilder } from '@nestjs/testing';
import { jest } from '@jest/globals';
import {
  DistributedLock,
  DistributedLockModule,
  LockAdmin,
  LockConfigError,
  LockDeadlockError,
  LockManager,
  LockService,
  LockBusyError,
  MemoryLockProvider,
  RunOnce,
} from '../../lib/index.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { DistributedLockTestingModule, TestLocks, FakeClock } from '../../lib/testing/index.js';
import { watch } from '../core/manager-rig.js';
import { Gate } from '../nest/apps.js';
import { CombinedLockProvider, FailoverLockProvider } from '../../lib/composite.js';
import { MemcachedLockProvider } from '../../lib/providers/memcached/index.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { type Abilities, ProviderInMemory, standInsFor } from '../../lib/testing/provider-in-memory.js';

@Injectable()
class Store {
  onSave = (_id: number): unknown => undefined;

  async save(id: number) {
    return this.onSave(id);
  }
}

@Injectable()
class Orders {
  constructor(private readonly store: Store) {}

  @DistributedLock('order:#{id}', { wait: '2s' })
  async pay(id: number) {
    await this.store.save(id);
    return 'paid';
  }
  @RunOnce('nightly', { minHold: '1h' })
  async nightly() {
    await this.store.save(0);
  }
}

const compiled: TestingModule[] = [];
afterEach(async () => {
  // Even if a test left a lock behind.
  for (const module of compiled.splice(0)) await module.close();
});

async function compile(builder: TestingModuleBuilder): Promise<TestingModule> {
  const module = await builder.compile();
  await module.init();
  // A failed boot has already stopped its locks, and Nest 11 also rejects its close().
  compiled.push(module);
  return module;
}

describe('DistributedLockTestingModule', () => {
  const start = async (options: Parameters<typeof DistributedLockTestingModule.forRoot>[0] = {}) => {
    const imports = [DistributedLockTestingModule.forRoot(options)];
    const module = await compile(Test.createTestingModule({ imports, providers: [Orders, Store] }));
    return { module, orders: module.get(Orders), store: module.get(Store), locks: module.get(TestLocks) };
  };

  it('provides real mutual exclusion and asserts which keys are locked', async () => {
    const { orders, store, locks } = await start();
    const seen: unknown[] = [];
    const gate = new Gate();
    store.onSave = async (id) => {
      locks.expectLocked(`order:${id}`);
      expect(() => locks.expectUnlocked(`order:${id}`)).toThrow('not to be locked');
      seen.push(id);
      await gate.opened;
    };
    const both = [orders.pay(1), orders.pay(1)];
    await locks.clock.advance(0);
    expect(seen).toEqual([1]);
    gate.open();
    expect(await Promise.all(both)).toEqual(['paid', 'paid']);
    expect(seen).toEqual([1, 1]);
    locks.expectUnlocked('order:1');
    expect(() => {
      locks.expectLocked('order:1');
    }).toThrow(new AssertionError({ message: 'Expected lock "order:1" to be locked; the application holds none.' }));
  });

  it('makes a key busy until free(), on a fake clock', async () => {
    const { orders, locks } = await start();
    await locks.busy('order:1');
    locks.expectUnlocked('order:1');
    const late = watch(orders.pay(1));
    await locks.clock.advance(1_999);
    expect(late.state).toBe('pending');
    await locks.clock.advance(1);
    expect(late.error).toBeInstanceOf(LockBusyError);
    const waiting = orders.pay(1);
    await locks.free('order:1');
    expect(await waiting).toBe('paid');
    await locks.free('order:1');
  });

  it('revokes a lock on lose()', async () => {
    const { orders, store, locks } = await start();
    const gate = new Gate();
    store.onSave = () => gate.opened;
    const paying = orders.pay(1);
    await locks.clock.advance(0);
    await locks.lose('order:1');
    gate.open();
    await expect(paying).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'revoked' });
    await expect(locks.lose('order:1')).rejects.toThrow('Expected lock "order:1" to be locked');
  });

  it('runs a job once, and again after `minHold`', async () => {
    const { orders, store, locks } = await start();
    let runs = 0;
    store.onSave = () => (runs += 1);
    await orders.nightly();
    await orders.nightly();
    expect(runs).toBe(1);
    await locks.clock.advance(3_600_000);
    await orders.nightly();
    expect(runs).toBe(2);
  });

  it('runs a scheduled job once per time of the fake clock, without a scheduler', async () => {
    let runs = 0;
    @Injectable()
    class Jobs {
      @Cron('0 3 * * *')
      @RunOnce('nightly')
      async nightly() {
        runs += 1;
      }
    }
    const imports = [DistributedLockTestingModule.forRoot()];
    const module = await compile(Test.createTestingModule({ imports, providers: [Jobs] }));
    const [jobs, locks] = [module.get(Jobs), module.get(TestLocks)];
    await jobs.nightly();
    await jobs.nightly();
    expect(runs).toBe(1);
    await locks.clock.advance(1);
    await jobs.nightly();
    expect(runs).toBe(2);
    await locks.busy('nightly');
    await locks.clock.advance(1);
    const skipped = jobs.nightly();
    // The job waits this long for the holder to record the tick.
    await locks.clock.advance(6_000);
    await skipped;
    expect(runs).toBe(2);
  });

  it('runs a scheduled job once per tick, with a scheduler', async () => {
    let runs = 0;
    @Injectable()
    class Jobs {
      @Cron('0 0 1 1 *')
      @RunOnce('yearly')
      async yearly() {
        runs += 1;
      }
    }
    const imports = [DistributedLockTestingModule.forRoot(), ScheduleModule.forRoot()];
    const module = await compile(Test.createTestingModule({ imports, providers: [Jobs] }));
    const [jobs, { clock }] = [module.get(Jobs), module.get(TestLocks)];
    await jobs.yearly();
    await clock.advance(1_000);
    await jobs.yearly();
    expect(runs).toBe(1);
    clock.block(366 * 86_400_000);
    await jobs.yearly();
    expect(runs).toBe(2);
  });

  it('busy() rejects a key that the application holds', async () => {
    const { module, locks } = await start();
    await module.get(LockService).acquire('a');
    await expect(locks.busy('a')).rejects.toThrow(
      'Expected lock "a" to be free so busy() can take it; the application holds "a" (provider "memory").',
    );
  });

  it('fails the boot where production would, and can lose locks of any provider', async () => {
    const row = new SqlRowLockProvider({ url: 'postgres://nobody@127.0.0.1:1/none' });
    await expect(start({ provider: row })).rejects.toThrow(
      'Orders.nightly: Lock provider "default" cannot keep a key locked after its release: remove "minHold"',
    );
    const imports = [DistributedLockTestingModule.forRoot({ provider: row })];
    const module = await compile(Test.createTestingModule({ imports }));
    const locks = module.get(TestLocks);
    const lock = await module.get(LockService).acquire('a');
    expect(lock.fencingToken).toBeNull();
    await expect(module.get(LockAdmin).forceRelease('a')).rejects.toThrow('does not support forceRelease()');
    expect(() => module.get(LockAdmin).list()).toThrow('does not support list()');
    await locks.lose('a');
    expect(lock.isHeld()).toBe(false);
    await locks.busy('a');
    expect(await module.get(LockService).tryAcquire('a')).toBeNull();
  });

  it('runs each due job once, and rejects it if the provider does not store records', async () => {
    const nodes = [1, 2, 3].map((port) => ({ url: `redis://127.0.0.1:${port}` }));
    const redlock = new RedlockLockProvider({ nodes, maxLease: '1m' });
    const { module } = await start({ providers: { memory: new MemoryLockProvider(), redlock }, default: 'memory' });
    const service = module.get(LockService);
    const due = new Date();
    await expect(service.runOnce('import', () => 1, { due })).resolves.toEqual({ ran: true, value: 1 });
    await expect(service.runOnce('import', () => 1, { due })).resolves.toEqual({ ran: false });
    await expect(service.via('redlock').runOnce('import', () => 1, { due })).rejects.toThrow('does not store records');
  });

  it('returns no fencing token if the provider has none', async () => {
    const provider = new SqlAdvisoryLockProvider({ url: 'postgres://nobody@127.0.0.1:1/none' });
    const { module } = await start({ providers: { memory: new MemoryLockProvider(), provider }, default: 'memory' });
    expect((await module.get(LockService).acquire('a')).fencingToken).not.toBeNull();
    expect((await module.get(LockService).via('provider').acquire('a')).fencingToken).toBeNull();
  });

  it('keeps the provider names and the other options', async () => {
    const { module, locks } = await start({
      providers: { one: new MemoryLockProvider(), two: new RedisLockProvider({ url: 'redis://127.0.0.1:1' }) },
      default: 'one',
      defaults: { wait: 0 },
    });
    const service = module.get(LockService);
    await locks.busy('a', 'two');
    expect(await service.tryAcquire('a')).not.toBeNull();
    await expect(service.via('two').acquire('a')).rejects.toBeInstanceOf(LockBusyError);
    locks.expectLocked('a');
    locks.expectUnlocked('a', 'two');
    await locks.free('a', 'two');
    await service.via('two').withLock('a', () => {
      locks.expectLocked('a', 'two');
    });
  });
});

describe('detectDeadlocks', () => {
  @Injectable()
  class Warehouse {
    readonly done: string[] = [];

    @DistributedLock('order:#{order.id}')
    async ship(order: { id: number }) {
      await this.take(order.id);
    }
    @DistributedLock('stock:#{item}')
    async take(item: number) {
      this.done.push(`take ${item}`);
    }
    @DistributedLock('stock:#{item}')
    async recount(item: number) {
      await this.note(item);
    }
    @DistributedLock((id: number) => [`order:${id}`])
    async note(id: number) {
      this.done.push(`note ${id}`);
    }
    @DistributedLock('order:#{id}', { onBusy: 'skip' })
    async tryToNote(id: number) {
      this.done.push(`note ${id}`);
    }
    @DistributedLock('stock:#{item}')
    async lookAt(item: number) {
      await this.tryToNote(item);
    }
  }

  const start = async (options: Parameters<typeof DistributedLockTestingModule.forRoot>[0]) => {
    const imports = [DistributedLockTestingModule.forRoot(options)];
    const module = await compile(Test.createTestingModule({ imports, providers: [Warehouse] }));
    return { module, warehouse: module.get(Warehouse), locks: module.get(TestLocks) };
  };

  it('fails each call that closes a cycle before it acquires anything', async () => {
    const { module, warehouse } = await start({ detectDeadlocks: true });
    await warehouse.ship({ id: 1 });
    await warehouse.lookAt(2);
    for (const item of [3, 4]) {
      const error: unknown = await warehouse.recount(item).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(LockDeadlockError);
      expect(error).toMatchObject({ code: 'LOCK_DEADLOCK', key: `order:${item}`, provider: 'memory' });
      expect(String(error)).toContain(
        `Lock "order:${item}" of Warehouse.note (provider "memory") is acquired under "stock:${item}" of Warehouse.recount, ` +
          'and elsewhere "stock:1" of Warehouse.take under "order:1" of Warehouse.ship. ',
      );
      expect(String(error)).not.toContain('Warned');
    }
    const locks = module.get(LockService);
    await expect(locks.withLock('stock:5', () => locks.withLock(['box:1', 'order:5'], () => 1))).rejects.toThrow(
      LockDeadlockError,
    );
    expect(module.get(LockAdmin).held()).toEqual([]);
    await warehouse.ship({ id: 6 });
    expect(warehouse.done).toEqual(['take 1', 'note 2', 'take 6']);
  });

  it('is off by default and scoped to one application', async () => {
    for (const options of [{}, { detectDeadlocks: false }, { detectDeadlocks: undefined }]) {
      const { warehouse } = await start(options);
      await warehouse.ship({ id: 1 });
      await warehouse.recount(1);
      expect(warehouse.done).toEqual(['take 1', 'note 1']);
    }
    const [one, other] = [await start({ detectDeadlocks: true }), await start({ detectDeadlocks: true })];
    await one.warehouse.ship({ id: 1 });
    await other.warehouse.recount(1);
  });

  it('is also an option of TestLocks', async () => {
    @Module({
      imports: [DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })],
      providers: [Warehouse],
    })
    class AppModule {}
    const locks = new TestLocks({ detectDeadlocks: true });
    const builder = Test.createTestingModule({ imports: [AppModule] });
    const module = await compile(builder.overrideProvider(LockManager).useFactory(locks.manager));
    const warehouse = module.get(Warehouse);
    await warehouse.recount(1);
    // Keys made busy by the test don't count as an order.
    await locks.busy('stock:2');
    await locks.busy('order:2');
    await expect(warehouse.ship({ id: 1 })).rejects.toThrow(LockDeadlockError);
  });

  it.each(['false', 1, null])('must be a boolean, not %p', (detectDeadlocks) => {
    expect(() => DistributedLockTestingModule.forRoot({ detectDeadlocks: detectDeadlocks as never })).toThrow(
      LockConfigError,
    );
  });
});

describe('TestLocks in an application that imports DistributedLockModule', () => {
  @Injectable()
  class Reports {
    constructor(readonly locks: LockService) {}
  }
  @Module({
    imports: [
      DistributedLockModule.forRootAsync({
        useFactory: () => ({
          providers: { redis: new RedisLockProvider({ url: 'redis://127.0.0.1:1' }) },
          default: 'redis',
        }),
      }),
    ],
    providers: [Orders, Store, Reports],
  })
  class AppModule {}

  it.each([
    { provider: undefined },
    { namespace: undefined },
    { defualts: { wait: '2s' } },
    { shutdownGrace: 'soon' },
    { mapErrors: { http: { busy: 200 } } },
    { context: { tenant: 'acme' } },
    { failFast: 'no' },
    { instance: '' },
  ])('rejects options that the application would reject at boot: %p', async (options) => {
    const locks = new TestLocks();
    const module = DistributedLockModule.forRootAsync({ useFactory: () => options as never });
    const builder = Test.createTestingModule({ imports: [module] });
    await expect(builder.overrideProvider(LockManager).useFactory(locks.manager).compile()).rejects.toThrow(
      LockConfigError,
    );
    const testing = Test.createTestingModule({ imports: [DistributedLockTestingModule.forRoot(options as never)] });
    await expect(testing.compile()).rejects.toThrow(LockConfigError);
  });

  it('replaces the lock manager without starting a backend', async () => {
    const locks = new TestLocks();
    expect(() => {
      locks.expectLocked('a');
    }).toThrow('compile the testing module first');
    const builder = Test.createTestingModule({ imports: [AppModule] });
    const module = await compile(builder.overrideProvider(LockManager).useFactory(locks.manager));
    await locks.busy('order:1');
    const late = watch(module.get(Orders).pay(1));
    await locks.clock.advance(2_000);
    expect(late.error).toBeInstanceOf(LockBusyError);
    await module.get(Reports).locks.withLock('a', () => {
      locks.expectLocked('a', 'redis');
    });
    expect(module.get(LockAdmin).held()).toEqual([]);
  });
});

it('reads the capabilities of providers without opening sockets or setting timers', async () => {
  const url = 'postgres://nobody@127.0.0.1:1/none';
  const nodes = [1, 2, 3].map((port) => ({ url: `redis://127.0.0.1:${port}` }));
  const clock = new FakeClock();
  const before = process.getActiveResourcesInfo();
  const found: Abilities[] = [];
  const standIn = (abilities: Abilities) => {
    found.push(abilities);
    return new ProviderInMemory(abilities);
  };
  const options = {
    providers: {
      redis: new RedisLockProvider({ url: 'redis://127.0.0.1:1' }),
      cluster: new RedisLockProvider({ cluster: [{ host: '127.0.0.1', port: 1 }] }),
      redlock: new RedlockLockProvider({ nodes, maxLease: '1m' }),
      row: new SqlRowLockProvider({ url }),
      version: new SqlVersionLockProvider({ url }),
      advisory: new SqlAdvisoryLockProvider({ url }),
      zookeeper: new ZooKeeperLockProvider({ connectString: '127.0.0.1:1' }),
      memcached: new MemcachedLockProvider({ server: '127.0.0.1:1' }),
      failover: new FailoverLockProvider({ providers: ['redis', 'zookeeper'], casStore: 'version' }),
      combined: new CombinedLockProvider({ providers: ['redis', 'row'] }),
    },
    default: 'redis',
    clock,
  };
  const names = Object.keys(standInsFor(options, standIn));
  // A connection would be opened in the ticks after the backends are created.
  await new Promise((resolve) => setImmediate(resolve));
  // Jest's own timers come and go.
  expect(process.getActiveResourcesInfo().filter((each) => each !== 'Timeout' && !before.includes(each))).toEqual([]);
  expect(clock.pendingTimers).toBe(0);
  const minHold = names.filter((_, index) => found[index]?.minHold);
  expect(minHold).toEqual(['redis', 'cluster', 'redlock', 'version', 'memcached']);
});

describe('Jest fake timers', () => {
  afterEach(() => {
    jest.useRealTimers();
  });

  it.each(['boot', 'held'])('do not affect the core\'s clock if installed at "%s"', async (moment) => {
    if (moment === 'boot') jest.useFakeTimers();
    const locks = new LockManager({ providers: { memory: new MemoryLockProvider() } });
    await locks.start();
    const lock = await locks.acquire('order');
    if (moment === 'held') jest.useFakeTimers();
    expect(lock.isHeld()).toBe(true);
    await expect(locks.acquire('order', { wait: 20 })).rejects.toMatchObject({ code: 'LOCK_BUSY' });
    jest.advanceTimersByTime(3_600_000);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
    await expect(locks.withLock('order', () => 'done')).resolves.toBe('done');
    await locks.stop();
  });

  it('do not delay several timers that are due together', async () => {
    const locks = new LockManager({ providers: { memory: new MemoryLockProvider() } });
    await locks.start();
    const lock = await locks.acquire('order');
    jest.useFakeTimers();
    const waits = Array.from({ length: 3 }, () => locks.acquire('order', { wait: 20 }));
    const outcomes = await Promise.allSettled(waits);
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    await lock.release();
    await locks.stop();
  });

  it('do not affect the package if installed before it is loaded', async () => {
    jest.useFakeTimers();
    await jest.isolateModulesAsync(async () => {
      const fresh = await import('../../lib/index.js');
      expect(fresh.LockManager).not.toBe(LockManager);
      const locks = new fresh.LockManager({ providers: { memory: new fresh.MemoryLockProvider() } });
      await locks.start();
      const lock = await locks.acquire('order');
      await expect(locks.acquire('order', { wait: 20 })).rejects.toMatchObject({ code: 'LOCK_BUSY' });
      await lock.release();
      await locks.stop();
    });
  });
});
