import { Controller, Get, type INestApplication, Injectable, Module, type Type } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { currentLock, DistributedLock, DistributedLockModule, LockService } from '../../lib/index.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { redisForTests } from './seam.js';

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
])('the e2e template of Nest, with the module of the README, applications %s', (_, closes) => {
  const apps: INestApplication[] = [];
  let AppModule: Type;
  let app: INestApplication;
  afterAll(async () => {
    await Promise.all(apps.map((each) => each.close()));
  });
  const redis = redisForTests();

  // Once for the file, as the decorator of an imported module is evaluated.
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

  it.each(['first', 'second', 'third'])('/ (GET), the %s test', async () => {
    const response = await fetch(await app.getUrl());
    expect([response.status, await response.text()]).toEqual([200, 'order 42 is paid']);
    const locks = app.get(LockService);
    await using lock = await locks.tryAcquire('order:42');
    expect(lock?.isHeld()).toBe(true);
    await expect(locks.tryAcquire('order:42')).resolves.toBeNull();
  });
});
