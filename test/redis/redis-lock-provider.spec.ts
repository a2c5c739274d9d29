import { expect } from '@jest/globals';
import { Controller, Get, type INestApplication, Injectable, Module, type Type } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import type { Holding } from '../../lib/api/lock-provider.js';
import { requestFor } from '../direct-backend.js';
import {
  granted,
  leave,
  redisForTests,
  request,
  type StartedBackend,
  startBackend,
  until,
  untilWaiting,
} from './seam.js';
import { currentLock, DistributedLock, DistributedLockModule, LockService } from '../../lib/index.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';

describe('RedisLockProvider', () => {
  const redis = redisForTests();
  let one: StartedBackend;

  beforeEach(async () => {
    one = await startBackend({ url: redis.server.url });
  });
  afterEach(async () => {
    await one.backend.close();
  });

  describe('the holder of a busy lock', () => {
    it('is reported if it got the lock after the first request', async () => {
      const [ann, bob, cid] = await Promise.all([1, 2, 3].map(() => startBackend({ url: redis.server.url })));
      if (!ann || !bob || !cid) throw new Error('All three must start.');
      const first = granted(await ann.backend.acquire(request('a')));
      const ofBob = requestFor('a', 'b0b0b0b0b0b0'.padEnd(32, '1'));
      const second = bob.backend.acquire(ofBob);
      await untilWaiting(bob);
      // Later by more than a network delay: the server queues by age.
      const ofCid = requestFor('a', 'c1dc1dc1dc1d'.padEnd(32, '1'));
      const third = cid.backend.acquire(ofCid);
      await untilWaiting(cid);
      const seen = (): Holding | null => cid.backend.heldBy(ofCid);
      expect(seen()?.instance).toBe(first.holder.slice(0, 12));
      await ann.backend.release(first);
      await second;
      // A slow reply makes the holder look older: its age is counted from when the request was sent.
      const hasCome = ({ instance, since }: Holding): boolean =>
        instance === ofBob.id.slice(0, 12) && (since ?? 0) > ofCid.since;
      await until(() => hasCome(seen() as Holding), 'the third process has polled');
      await leave(cid.backend, ofCid);
      expect(await third).toBe('busy');
    });

    it('is null for a lock that is only retained', async () => {
      const { backend } = await startBackend({ url: redis.server.url });
      const held = granted(await backend.acquire(request('kept', { minHold: 30_000 })));
      await backend.release(held, { keepFor: 30_000, failed: false });
      const asked = request('kept', { wait: 0 });
      expect(await backend.acquire(asked)).toBe('busy');
      expect(backend.heldBy(asked)).toBeNull();
    });
  });
});

@Injectable()
class OrderService {
  @DistributedLock('order:#{order.id}', { wait: '2s' })
  async pay(order: { id: number }) {
    currentLock().assertHeld();
    return `order ${order.id} is paid`;
  }
}

@Controller()
class AppController {
  constructor(private readonly orders: OrderService) {}

  @Get()
  pay() {
    return this.orders.pay({ id: 42 });
  }
}

describe.each([
  ['closed after each test', true],
  ['left open', false],
])("Nest's e2e template with the module from the README, applications %s", (_, closes) => {
  const apps: INestApplication[] = [];
  let AppModule: Type;
  let app: INestApplication;
  afterAll(async () => {
    await Promise.all(apps.map((each) => each.close()));
  });
  const redis = redisForTests();

  // Runs once for the file, like an imported module, whose decorators run once.
  beforeAll(() => {
    @Module({
      imports: [
        DistributedLockModule.forRoot({
          namespace: 'shop',
          provider: new RedisLockProvider({ url: redis.server.url }),
        }),
      ],
      controllers: [AppController],
      providers: [OrderService],
    })
    class RootModule {}
    AppModule = RootModule;
  });

  beforeEach(async () => {
    const moduleFixture = await Test.createTestingModule({ imports: [AppModule] }).compile();
    app = moduleFixture.createNestApplication();
    apps.push(app);
    await app.listen(0, '127.0.0.1');
  });
  afterEach(async () => {
    if (closes) await app.close();
  });

  it.each(['first', 'second', 'third'])('responds to GET / in the %s test', async () => {
    const response = await fetch(await app.getUrl());
    expect([response.status, await response.text()]).toEqual([200, 'order 42 is paid']);
    const locks = app.get(LockService);
    await using lock = await locks.tryAcquire('order:42');
    expect(lock?.isHeld()).toBe(true);
    await expect(locks.tryAcquire('order:42')).resolves.toBeNull();
  });
});
