import { jest } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  currentLock,
  DistributedLock,
  InjectLockService,
  LockLostError,
  LockService,
  LockBusyError,
  RunOnce,
} from '../../lib/index.js';
import { type LockServiceStubOptions, provideLockServiceStub } from '../../lib/testing/index.js';
import { Gate } from '../nest/apps.js';

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
  @RunOnce('nightly', { atLeast: '1h' })
  async nightly() {
    return undefined;
  }
  @DistributedLock('#{ctx.tenant}', { provider: 'mysql' })
  async elsewhere() {
    return currentLock().provider;
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
  it('grants at once, excludes nobody, and remembers', async () => {
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

  it('stands for the lock services of its providers, too', async () => {
    @Injectable()
    class Archive {
      constructor(@InjectLockService('mysql') private readonly locks: LockService) {}
      move() {
        return this.locks.withLock('archive', ({ provider }) => provider);
      }
    }
    const locks = provideLockServiceStub({ providers: ['redis', 'mysql'] });
    const module = await Test.createTestingModule({ providers: [Archive, locks, ...locks.named] }).compile();
    expect(await module.get(Archive).move()).toBe('mysql');
    expect(locks.acquired).toEqual(['archive']);
  });

  it('is busy when told, without waiting, until told otherwise', async () => {
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

  it('knows what is held, and takes limits', async () => {
    const stub = provideLockServiceStub();
    const module = await Test.createTestingModule({ providers: [stub] }).compile();
    const locks = module.get(LockService);
    await locks.withLock('report', async () => expect(await locks.isLocked('report')).toBe(true), { limit: 3 });
    expect(await locks.isLocked('report')).toBe(false);
    stub.busy('report');
    expect(await locks.isLocked('report')).toBe(true);
    await expect(locks.acquire('report', { limit: 3, wait: 0 })).rejects.toThrow(LockBusyError);
  });

  it('loses when told', async () => {
    const stub = await orders();
    const gate = new Gate();
    const slow = stub.orders.slow(gate.opened);
    const other = stub.orders.pay({ id: 1 });
    await stub.locks.lose('slow');
    gate.open();
    await expect(slow).rejects.toBeInstanceOf(LockLostError);
    await expect(other).resolves.toBeDefined();
  });

  it('stands for providers and resolvers of the module', async () => {
    const stub = await orders({ providers: ['redis', 'mysql'], context: { tenant: () => 'acme' } });
    await expect(stub.orders.elsewhere()).resolves.toBe('mysql');
    expect(stub.locks.acquired).toEqual(['acme']);
    await expect((await orders()).orders.elsewhere()).rejects.toThrow(/no lock provider "mysql"/);
  });
});

describe('useMocker()', () => {
  // As @golevel/ts-jest and others make them: whatever is asked of it is a function.
  const automatic = (): unknown =>
    new Proxy({}, { get: (_, name) => (name === 'then' ? undefined : () => automatic()) });

  it.each([
    ['an empty object', () => ({})],
    ['an automatic mock', automatic],
  ])('%s in the place of the lock service is refused: a locked method would not run', async (_, mock) => {
    const module = await Test.createTestingModule({ providers: [Orders] })
      .useMocker(mock)
      .compile();
    await expect(module.get(Orders).pay({ id: 1 })).rejects.toThrow(
      'Orders.pay was given a mock as its lock service, under which it would not run: provide LockService with provideLockServiceStub()',
    );
  });

  it('is not asked where the stub is provided', async () => {
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
