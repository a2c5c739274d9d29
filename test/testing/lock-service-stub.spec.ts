import { jest } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Cron } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import {
  currentLock,
  DistributedLock,
  LockAdmin,
  LockDefaults,
  LockLostError,
  LockManager,
  type LockOptions,
  LockService,
  LockBusyError,
  LockKeyError,
  OnlyLeader,
  RunOnce,
} from '../../lib/index.js';
import { CombinedLockProvider } from '../../lib/composite.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { MemcachedLockProvider } from '../../lib/providers/memcached/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider } from '../../lib/providers/sql/index.js';
import { type LockServiceStubOptions, provideLockServiceStub } from '../../lib/testing/index.js';
import { Gate } from '../nest/apps.js';

const NODES = [1, 2, 3].map((port) => ({ url: `redis://127.0.0.1:${port}` }));

@Injectable()
class Orders {
  constructor(private readonly locks: LockService) {}

  @DistributedLock('order:#{order.id}')
  async pay(order: { id: number }) {
    return { id: order.id, fence: currentLock().fencingToken };
  }
  @DistributedLock('slow')
  async slow(until: Promise<void>) {
    await until;
    return 'done';
  }
  @RunOnce('nightly', { minHold: '1h' })
  async nightly() {
    return undefined;
  }
  @DistributedLock('#{ctx.tenant}', { provider: 'mysql' })
  async elsewhere() {
    return currentLock().provider;
  }
  once(due: Date) {
    return this.locks.runOnce('import', () => 'done', { due });
  }
  byHand() {
    return this.locks.withLock(['b', 'a'], ({ keys }) => keys);
  }
}

async function orders(options?: LockServiceStubOptions) {
  const locks = provideLockServiceStub(options);
  const module = await Test.createTestingModule({ providers: [Orders, locks] }).compile();
  return { locks, orders: module.get(Orders) };
}

describe('provideLockServiceStub', () => {
  it('runs every due job as if for the first time, unless its key is busy', async () => {
    const { locks, orders: service } = await orders();
    const run = () => service.once(new Date());
    await expect(run()).resolves.toEqual({ ran: true, value: 'done' });
    await expect(service.once(new Date(0))).resolves.toMatchObject({ ran: true });
    expect(locks.acquired).toEqual(['import', 'import']);
    locks.busy('import');
    await expect(run()).resolves.toEqual({ ran: false });
    locks.free('import');
    await expect(run()).resolves.toMatchObject({ ran: true });
  });

  it('rejects a due job if the provider does not store records', async () => {
    const { orders: service } = await orders({
      providers: { redlock: new RedlockLockProvider({ nodes: NODES, maxLease: '1m' }) },
    });
    await expect(service.once(new Date())).rejects.toThrow(/"redlock" does not store records/);
  });

  it('grants immediately, excludes no call, and records the keys', async () => {
    const stub = await orders();
    const gate = new Gate();
    const both = [stub.orders.slow(gate.opened), stub.orders.slow(gate.opened)];
    gate.open();
    await expect(Promise.all(both)).resolves.toEqual(['done', 'done']);
    await expect(stub.orders.pay({ id: 42 })).resolves.toEqual({ id: 42, fence: 3n });
    await expect(stub.orders.byHand()).resolves.toEqual(['a', 'b']);
    await stub.orders.nightly();
    expect(stub.locks.acquired).toEqual(['slow', 'slow', 'order:42', 'a', 'b', 'nightly']);
  });

  it('also stubs the services returned by via()', async () => {
    @Injectable()
    class Archive {
      readonly #locks: LockService;
      constructor(locks: LockService) {
        this.#locks = locks.via('mysql');
      }
      move() {
        return this.#locks.withLock('archive', ({ provider }) => provider);
      }
    }
    const locks = provideLockServiceStub({ providers: ['redis', 'mysql'] });
    const module = await Test.createTestingModule({ providers: [Archive, locks] }).compile();
    expect(await module.get(Archive).move()).toBe('mysql');
    expect(locks.acquired).toEqual(['archive']);
  });

  it('is busy without waiting after busy(), until free()', async () => {
    const stub = await orders();
    stub.locks.busy('order:42');
    stub.locks.busy('nightly');
    await expect(stub.orders.pay({ id: 42 })).rejects.toBeInstanceOf(LockBusyError);
    await expect(stub.orders.nightly()).resolves.toBeUndefined();
    await stub.orders.pay({ id: 43 });
    stub.locks.free('order:42');
    await stub.orders.pay({ id: 42 });
    expect(stub.locks.acquired).toEqual(['order:43', 'order:42']);
  });

  describe('with a scheduled job', () => {
    @Injectable()
    class Jobs {
      runs = 0;
      @Cron('0 3 * * *')
      @RunOnce('nightly', { catchUp: '6h', afterCrash: 1, maxHold: '1h' })
      async nightly(): Promise<string | undefined> {
        this.runs += 1;
        return currentLock().key;
      }
    }
    async function jobs(options?: LockServiceStubOptions) {
      const stub = provideLockServiceStub(options);
      const module = await Test.createTestingModule({ providers: [Jobs, stub, stub.admin] }).compile();
      const skips: unknown[] = [];
      module.get(LockService).events.on('skipped', ({ key, method, reason }) => skips.push({ key, method, reason }));
      return { stub, module, skips, job: module.get(Jobs) };
    }

    it('runs each call, without a scheduler', async () => {
      const { stub, job, skips } = await jobs();
      await expect(job.nightly()).resolves.toBe('nightly');
      await expect(job.nightly()).resolves.toBe('nightly');
      expect(stub.acquired).toEqual(['nightly', 'nightly']);
      expect(stub.calls).toMatchObject([{ method: 'Jobs.nightly', wait: 0, maxHold: 3_600_000, minHold: 0 }, {}]);
      expect(skips).toEqual([]);
    });

    it('skips a run whose key is busy, as if another process had run it', async () => {
      const { stub, job, skips } = await jobs();
      stub.busy('nightly');
      await expect(job.nightly()).resolves.toBeUndefined();
      expect([job.runs, stub.acquired]).toEqual([0, []]);
      expect(skips).toEqual([{ key: 'nightly', method: 'Jobs.nightly', reason: 'done' }]);
      stub.free('nightly');
      await expect(job.nightly()).resolves.toBe('nightly');
    });

    it('rejects a provider that does not store records', async () => {
      const { job } = await jobs({ providers: { cache: new MemcachedLockProvider({ server: '127.0.0.1:1' }) } });
      await expect(job.nightly()).rejects.toThrow(/"cache" does not store records/);
    });
  });

  it.each([
    ['a template', 'order:#{order.id}'],
    ['empty text', ''],
    ['not a string', undefined as never],
  ])('rejects an invalid key: %s', async (_, key) => {
    const { locks } = await orders();
    expect(() => locks.busy(key)).toThrow(LockKeyError);
    expect(() => locks.free(key)).toThrow(LockKeyError);
    await expect(locks.lose(key)).rejects.toThrow(LockKeyError);
  });

  it('tracks held locks and supports limits', async () => {
    const stub = provideLockServiceStub();
    const module = await Test.createTestingModule({ providers: [stub] }).compile();
    const locks = module.get(LockService);
    await locks.withLock('report', async () => expect(await locks.isLocked('report')).toBe(true), { limit: 3 });
    expect(await locks.isLocked('report')).toBe(false);
    stub.busy('report');
    expect(await locks.isLocked('report')).toBe(true);
    await expect(locks.acquire('report', { limit: 3, wait: 0 })).rejects.toThrow(LockBusyError);
  });

  it('rejects a nested call that would deadlock in production', async () => {
    const locks = provideLockServiceStub();
    const service = await locks.useFactory();
    await service.withLock('a', async (lock) => {
      await expect(service.acquire(['a', 'b'])).rejects.toThrow(/async context of its own holder.*within/);
      await expect(service.tryAcquire('a')).resolves.toBeNull();
      await service.withLock('a', () => undefined, { within: lock });
      await lock.run(() => service.withLock('a', () => undefined));
    });
    await service.withLock('a', () => undefined);
    const within = await service.acquire('b');
    await service.withLock('b', () => service.withLock('b', () => undefined, { within }), { within });
    const shared = { mode: 'shared' } as const;
    await service.withLock('a', () => service.withLock('a', () => undefined, shared), shared);
  });

  describe('with leader methods', () => {
    @Injectable()
    class Leader {
      @OnlyLeader('k')
      async outer(): Promise<string | undefined> {
        return await this.inner();
      }
      @OnlyLeader('k')
      async inner(): Promise<string | undefined> {
        return currentLock().key;
      }
      @DistributedLock('k')
      async locked() {
        return await this.inner();
      }
    }
    async function leader() {
      const module = await Test.createTestingModule({ providers: [Leader, provideLockServiceStub()] }).compile();
      return { leader: module.get(Leader), locks: module.get(LockService) };
    }

    it('lets one call another', async () => {
      const { leader: methods } = await leader();
      await expect(methods.outer()).resolves.toBe('k');
    });

    it('lets the task of a leader call one', async () => {
      const { leader: methods, locks } = await leader();
      const controller = new AbortController();
      const seen: unknown[] = [];
      const task = async () => {
        seen.push(await methods.inner());
        controller.abort();
      };
      await locks.runAsLeader('k', task, { signal: controller.signal });
      expect(seen).toEqual(['k']);
    });

    it('rejects a call under a lock on its key', async () => {
      const { leader: methods } = await leader();
      await expect(methods.locked()).rejects.toThrow(/async context of its own holder/);
    });
  });

  it('applies `onBusy` to a nested call of a decorated method', async () => {
    @Injectable()
    class Nested {
      @DistributedLock('a')
      async outer() {
        return this.inner();
      }
      @DistributedLock('a', { onBusy: 'skip' })
      async inner(): Promise<string | undefined> {
        return 'inside';
      }
    }
    const locks = provideLockServiceStub();
    const module = await Test.createTestingModule({ providers: [Nested, locks] }).compile();
    await expect(module.get(Nested).outer()).resolves.toBeUndefined();
  });

  it('loses a lock on lose()', async () => {
    const stub = await orders();
    const gate = new Gate();
    const slow = stub.orders.slow(gate.opened);
    const other = stub.orders.pay({ id: 1 });
    await stub.locks.lose('slow');
    gate.open();
    await expect(slow).rejects.toBeInstanceOf(LockLostError);
    await expect(other).resolves.toBeDefined();
  });

  it("supports the module's providers and context resolvers", async () => {
    const stub = await orders({ providers: ['redis', 'mysql'], context: { tenant: () => 'acme' } });
    await expect(stub.orders.elsewhere()).resolves.toBe('mysql');
    expect(stub.locks.acquired).toEqual(['acme']);
    await expect((await orders()).orders.elsewhere()).rejects.toThrow(/no lock provider "mysql"/);
  });
});

describe('a stub configured with providers', () => {
  const rowLock = new SqlRowLockProvider({ url: 'postgres://nobody@127.0.0.1:1/none' });
  const mysql = new SqlRowLockProvider({ url: 'mysql://nobody@127.0.0.1:1/none', fencing: true });
  const advisory = new SqlAdvisoryLockProvider({ url: 'postgres://nobody@127.0.0.1:1/none' });

  it.each<[string, LockProvider, LockOptions]>([
    ['minHold of a row lock', rowLock, { minHold: '1s' }],
    ['a limit of a row lock', rowLock, { limit: 3 }],
    ['a lease of a row lock', rowLock, { lease: '1s' }],
    ['readers of a row lock on Postgres', rowLock, { mode: 'shared' }],
    ['a lease beyond maxLease', new RedlockLockProvider({ nodes: NODES, maxLease: '10s' }), { lease: '11s' }],
    ['a limit of Redlock', new RedlockLockProvider({ nodes: NODES, maxLease: '1m' }), { limit: 3 }],
  ])('rejects %s with the same error as production', async (_, provider, options) => {
    const production = new LockManager({ providers: { main: provider } });
    const refusal = expect.objectContaining({ code: 'LOCK_CONFIG' }) as Error;
    const expected = await production.acquire('a', options).catch((error: unknown) => error as Error);
    expect(expected).toEqual(refusal);
    const service = await provideLockServiceStub({ providers: { main: provider } }).useFactory();
    await expect(service.acquire('a', options)).rejects.toMatchObject({ message: (expected as Error).message });
    expect(await service.tryAcquire('a')).not.toBeNull();
  });

  it('grants what the providers support, and no fencing token if they have none', async () => {
    const providers = { mysql, advisory, memory: { fencing: false } };
    const service = await provideLockServiceStub({ providers }).useFactory();
    expect((await service.acquire('a', { mode: 'shared' })).fencingToken).toBe(1n);
    for (const name of ['advisory', 'memory']) {
      expect((await service.via(name).acquire('a')).fencingToken).toBeNull();
    }
    expect((await service.via('memory').acquire('b', { minHold: '1s' })).keys).toEqual(['b']);
  });

  it('rejects invalid composites like production', () => {
    const providers = { main: new CombinedLockProvider({ providers: ['one', 'two'] }), one: {} };
    expect(() => provideLockServiceStub({ providers })).toThrow('Lock provider "main" depends on "two"');
  });
});

describe("the stub's records", () => {
  it('include all calls with their effective options', async () => {
    @LockDefaults({ wait: '3s', onLost: 'ignore' })
    @Injectable()
    class Reports {
      constructor(private readonly locks: LockService) {}

      @DistributedLock('report:#{p0}', { limit: 5, weight: 2, maxHold: '1m' })
      async write(_id: number) {
        await this.locks.withLock('index', () => undefined, { mode: 'shared', wait: 0 });
      }
      @RunOnce('nightly', { minHold: '1h' })
      async nightly() {}
    }
    const locks = provideLockServiceStub();
    const module = await Test.createTestingModule({ providers: [Reports, locks] }).compile();
    locks.busy('nightly');
    await module.get(Reports).write(7);
    await module.get(Reports).nightly();
    const provider = 'stub';
    expect(locks.calls).toEqual([
      {
        ...{ keys: ['report:7'], provider, method: 'Reports.write', mode: 'limited', limit: 5, weight: 2 },
        ...{
          wait: 3_000,
          lease: 30_000,
          maxHold: 60_000,
          minHold: 0,
          reentrant: 'explicit',
          onLost: 'ignore',
        },
        release: 'confirmed',
      },
      {
        ...{ keys: ['index'], provider, method: null, mode: 'shared', limit: undefined, weight: undefined, wait: 0 },
        ...{ lease: 30_000, maxHold: Infinity, minHold: 0, reentrant: 'explicit', onLost: 'throw' },
        release: 'confirmed',
      },
      expect.objectContaining({ keys: ['nightly'], method: 'Reports.nightly', wait: 0, minHold: 3_600_000 }),
    ]);
    expect(locks.acquired).toEqual(['report:7', 'index']);
  });

  it('are visible through LockAdmin', async () => {
    const locks = provideLockServiceStub();
    const module = await Test.createTestingModule({ providers: [locks, locks.admin] }).compile();
    const lock = await module.get(LockService).acquire('a', { limit: 2 });
    const admin = module.get(LockAdmin);
    expect(admin.held()).toMatchObject([{ key: 'a', mode: 'limited' }]);
    expect(await admin.inspect('a')).toMatchObject({ state: 'held', mode: 'limited', fencingToken: null });
    expect(await admin.forceRelease('a')).toBe(true);
    expect(lock.isHeld()).toBe(false);
  });
});

describe('useMocker()', () => {
  // Like the mocks of @golevel/ts-jest and others, where every property is a function.
  const automatic = (): unknown =>
    new Proxy({}, { get: (_, name) => (name === 'then' ? undefined : () => automatic()) });

  it.each([
    ['an empty object', () => ({})],
    ['an automatic mock', automatic],
  ])('rejects %s as LockService, because a locked method would never run', async (_, mock) => {
    const module = await Test.createTestingModule({ providers: [Orders] })
      .useMocker(mock)
      .compile();
    await expect(module.get(Orders).pay({ id: 1 })).rejects.toThrow(
      'Orders.pay was given a mock as its lock service, so it would never run: provide LockService with provideLockServiceStub()',
    );
  });

  it('is not mentioned in the error for a mock the test provides', async () => {
    const own = { provide: LockService, useValue: {} };
    const module = await Test.createTestingModule({ providers: [Orders, own] }).compile();
    await expect(module.get(Orders).pay({ id: 1 })).rejects.toThrow('instead of your own mock or useMocker()');
  });

  it('is not called for LockService if the stub is provided', async () => {
    const asked: unknown[] = [];
    const mock = (token: unknown) => asked.push(token);
    const module = await Test.createTestingModule({ providers: [Orders, provideLockServiceStub()] })
      .useMocker(mock)
      .compile();
    expect(await module.get(Orders).pay({ id: 1 })).toMatchObject({ id: 1 });
    expect(asked).toEqual([]);
  });
});

it('lose() works under fake timers', async () => {
  const stub = provideLockServiceStub();
  const service = await stub.useFactory();
  jest.useFakeTimers();
  try {
    await service.acquire('a');
    await expect(stub.lose('a')).resolves.toBeUndefined();
  } finally {
    jest.useRealTimers();
  }
});

it('leader() returns the application, or an unknown instance if the key is busy', async () => {
  const stub = provideLockServiceStub();
  const locks = await stub.useFactory();
  expect(await locks.leader('prices')).toEqual({ instance: 'stub', since: null, fencingToken: null });
  stub.busy('prices');
  expect(await locks.leader('prices')).toMatchObject({ instance: null });
  stub.free('prices');
  const lock = await locks.acquire('prices');
  expect(await locks.leader('prices')).toMatchObject({ instance: 'stub', fencingToken: lock.fencingToken });
});
