import { once } from 'node:events';
import { Injectable, type LogLevel, type LoggerService, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Cron, Interval, ScheduleModule, Timeout } from '@nestjs/schedule';
import {
  DistributedLock,
  DistributedLockModule,
  type LeaderTerm,
  LockDefaults,
  LockService,
  MemoryLockProvider,
  OnlyLeader,
  RunAsLeader,
  RunOnce,
} from '../../../lib/index.js';
import { warnOfUnhandledSignals } from '../../../lib/nest/module/boot-report.js';
import { CountingProvider } from '../../backend-context.js';
import { until } from '../../until.js';
import { liveServices } from '../../../lib/nest/service/service-slot.js';
import { start } from '../apps.js';

class CapturingLogger implements LoggerService {
  readonly lines: string[] = [];
  readonly #note = (level: LogLevel) => (message: unknown, context: unknown) => {
    if (context === 'DistributedLock') this.lines.push(`${level}: ${String(message)}`);
  };
  log = this.#note('log');
  debug = this.#note('debug');
  warn = this.#note('warn');
  error = this.#note('error');
}

it('logs one line for each provider, and one table of locked methods', async () => {
  abstract class Base {
    @DistributedLock('base', { provider: 'sessions', wait: Infinity })
    async inherited() {}
  }
  @LockDefaults({ lease: '2m' })
  @Injectable()
  class Orders extends Base {
    @DistributedLock('order:#{order.id}', { wait: '500ms' })
    async pay(order: { id: number }) {
      return order;
    }
    @DistributedLock((id: string) => id, { lease: '10s' })
    async find(id: string) {
      return id;
    }
  }
  @Injectable()
  class AlsoInherits extends Base {}
  @Injectable()
  class Prices {
    @RunAsLeader('prices', { lease: '20s' })
    async follow({ signal }: LeaderTerm) {
      await once(signal, 'abort');
    }
    @OnlyLeader('prices')
    async report() {}
    @OnlyLeader('sums')
    async sum() {}
  }
  class SessionProvider extends CountingProvider {
    protected override readonly capabilities = {
      lease: 'session' as const,
      shared: false,
      fair: false,
      fencing: false,
      minHold: false,
    };
  }
  @Module({
    imports: [
      DistributedLockModule.forRoot({
        providers: { memory: new MemoryLockProvider(), sessions: new SessionProvider() },
        default: 'memory',
      }),
    ],
    providers: [Orders, AlsoInherits, Prices],
  })
  class AppModule {}
  const logger = new CapturingLogger();
  const app = await NestFactory.createApplicationContext(AppModule, { logger });
  await app.close();
  expect(logger.lines).toEqual([
    'log: Lock provider "memory" is a MemoryLockProvider: exclusive, shared, limited locks, fair among processes, with fencing tokens, a lease per lock, minHold',
    'log: Lock provider "sessions" is a SessionProvider: exclusive, limited locks, unordered among processes, without fencing tokens, locks live as long as their session, no minHold',
    [
      'debug: Locked methods:',
      '  method          key                provider  wait       lease',
      '  Base.inherited  base               sessions  unlimited  session',
      '  Orders.find     (key function)     memory    5s         10s',
      '  Orders.pay      order:#{order.id}  memory    500ms      2m',
      '  Prices.follow   prices             memory    unlimited  20s',
      '  Prices.sum      sums               memory    unlimited  30s',
    ].join('\n'),
  ]);
});

it('warns of scheduled methods that would run once per process, whatever the order of the decorators', async () => {
  class NoMinHold extends CountingProvider {
    protected override readonly capabilities = { minHold: false };
  }
  const yearly = '0 0 1 1 *';
  const day = 86_400_000;
  @Injectable()
  class Jobs {
    @Cron(yearly)
    @RunOnce('cron', { minHold: 0 })
    async cron() {}
    @RunOnce('interval', { minHold: 0 })
    @Interval(day)
    async interval() {}
    @Timeout(day)
    @DistributedLock('timeout', { provider: 'without' })
    async timeout() {}

    @Cron(yearly)
    @RunOnce('once', { minHold: '1m' })
    async once() {}
    @DistributedLock('kept', { minHold: '1m' })
    @Interval(day)
    async kept() {}
    @RunOnce('by hand', { minHold: 0 })
    async byHand() {}
    @Cron(yearly)
    async unlocked() {}
  }
  @Module({
    imports: [
      ScheduleModule.forRoot(),
      DistributedLockModule.forRoot({
        providers: { memory: new MemoryLockProvider(), without: new NoMinHold() },
        default: 'memory',
      }),
    ],
    providers: [Jobs],
  })
  class AppModule {}
  const logger = new CapturingLogger();
  const app = await NestFactory.createApplicationContext(AppModule, { logger });
  await app.close();
  const why = 'is scheduled, but its key is free as soon as it has run, so a process that fires later runs it again:';
  const setIt = 'set "minHold" above the largest difference in firing times.';
  expect(logger.lines.filter((line) => line.startsWith('warn'))).toEqual([
    `warn: Jobs.cron ${why} ${setIt}`,
    `warn: Jobs.interval ${why} ${setIt}`,
    `warn: Jobs.timeout ${why} lock provider "without" cannot keep the key locked, so choose one that can and set "minHold", or make the run skip work already done.`,
  ]);
});

it('warns of scheduled methods whose key is still locked when they are due again', async () => {
  const day = 86_400_000;
  @Injectable()
  class Jobs {
    @Cron('0 */10 * * * *')
    @RunOnce('longer', { minHold: '15m' })
    async longer() {}
    @RunOnce('just as long', { minHold: '10m' })
    @Cron('*/10 * * * *')
    async justAsLong() {}
    @Cron('0 9,17 * * 1-5')
    @RunOnce('twice a day', { minHold: '9h' })
    async twiceADay() {}
    @Interval(day)
    @DistributedLock('interval', { minHold: 90_000_000 })
    async interval() {}

    @Cron('*/10 * * * *')
    @RunOnce('shorter', { minHold: '9m' })
    async shorter() {}
    @Interval(day)
    @RunOnce('shorter interval', { minHold: '23h' })
    async shorterInterval() {}
    @Timeout(day)
    @RunOnce('timeout', { minHold: '2d' })
    async timeout() {}
    @Cron('*/10 * * * *', { disabled: true })
    @RunOnce('disabled', { minHold: '1h' })
    async disabled() {}
    @Cron(new Date(Date.now() + day))
    @RunOnce('date', { minHold: '2d' })
    async date() {}
    @RunOnce('by hand', { minHold: '1d' })
    async byHand() {}
  }
  @Module({
    imports: [ScheduleModule.forRoot(), DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })],
    providers: [Jobs],
  })
  class AppModule {}
  const logger = new CapturingLogger();
  const app = await NestFactory.createApplicationContext(AppModule, { logger });
  await app.close();
  const why = (time: string) => `"minHold" keeps its key locked for ${time}, so runs are skipped:`;
  expect(logger.lines.filter((line) => line.startsWith('warn'))).toEqual([
    `warn: Jobs.longer is due again after 10m, but ${why('15m')} lower it below 10m, or schedule the method less often.`,
    `warn: Jobs.justAsLong is due again after 10m, but ${why('10m')} lower it below 10m, or schedule the method less often.`,
    `warn: Jobs.twiceADay is due again after 8h, but ${why('9h')} lower it below 8h, or schedule the method less often.`,
    `warn: Jobs.interval is due again after 1d, but ${why('90000s')} lower it below 1d, or schedule the method less often.`,
  ]);
});

it('warns of a key template that seems to lack a #', async () => {
  @Injectable()
  class Orders {
    @DistributedLock('order:{id}')
    async pay(id: string) {
      return id;
    }
    @DistributedLock('{orders}:#{id}')
    async ship(id: string) {
      return id;
    }
  }
  @Module({
    imports: [DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })],
    providers: [Orders],
  })
  class AppModule {}
  const logger = new CapturingLogger();
  const app = await NestFactory.createApplicationContext(AppModule, { logger });
  await app.close();
  expect(logger.lines.filter((line) => line.startsWith('warn'))).toEqual([
    'warn: Key template "order:{id}" of Orders.pay is the same for all calls, although the method has parameters: write "order:#{id}" if each value needs its own lock.',
  ]);
});

it('warns if nothing handles SIGTERM, also for an application context, which can enable it only after its boot', async () => {
  @Module({ imports: [DistributedLockModule.forRoot({ provider: new CountingProvider() })] })
  class Remote {}
  @Module({ imports: [DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })] })
  class InMemory {}
  const loggers = [Remote, InMemory].map((module) => ({ module, logger: new CapturingLogger() }));
  const [remote, inMemory] = loggers.map(({ logger }) => logger);
  const apps = await Promise.all(
    loggers.map(({ module, logger }) => NestFactory.createApplicationContext(module, { logger })),
  );
  const warned = () => [remote, inMemory].map((each) => each?.lines.filter((line) => line.startsWith('warn')));
  await until(() => warned().flat().length > 0, 'the application has warned');
  const warning =
    'warn: Nothing handles SIGTERM, so a terminated process keeps its locks until their leases expire: call app.enableShutdownHooks() in main.ts.';
  expect(new Set(warned().flat())).toEqual(new Set([warning]));
  apps[0]?.enableShutdownHooks();
  const service = apps[0]?.get(LockService) as LockService;
  const before = warned().flat().length;
  const found = {
    providers: [],
    plans: new Map<never, never>(),
    problems: new Set<string>(),
    warnings: new Set<string>(),
  };
  warnOfUnhandledSignals({ service, ...found });
  expect(warned().flat()).toHaveLength(before);
  await Promise.all(apps.map((app) => app.close()));
});

@Injectable()
class Payments {
  @DistributedLock('pay', { wait: 0 })
  async pay() {
    return 'paid';
  }
}

async function boot(payments: Payments, warnings: string[] = []) {
  @Module({
    imports: [DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })],
    providers: [{ provide: Payments, useValue: payments }],
  })
  class App {}
  const logger: LoggerService = {
    log: () => undefined,
    error: () => undefined,
    warn: (message: string) => void warnings.push(message),
  };
  return await NestFactory.createApplicationContext(App, { logger, abortOnError: false });
}

it('warns of an instance shared by two live applications, which belongs to the second once the first has stopped', async () => {
  const shared = new Payments();
  const warnings: string[] = [];
  const one = await boot(shared);
  const other = await boot(shared, warnings);
  expect(warnings).toEqual([expect.stringMatching(/An instance of Payments is shared with another live application/)]);
  await one.close();
  await expect(shared.pay()).resolves.toBe('paid');
  const lock = await other.get(LockService).acquire('pay');
  await expect(shared.pay()).rejects.toMatchObject({ code: 'LOCK_BUSY' });
  await lock.release();
  await other.close();
  const later = await boot(shared);
  await expect(shared.pay()).resolves.toBe('paid');
  await later.close();
});

it('does not count an application whose boot failed as live', async () => {
  @Module({
    imports: [DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })],
    providers: [
      {
        provide: 'fails',
        inject: [LockService],
        useFactory: () => {
          throw new Error('It fails.');
        },
      },
    ],
  })
  class Bad {}
  for (let round = 0; round < 2; round += 1) {
    await expect(NestFactory.createApplicationContext(Bad, { logger: false, abortOnError: false })).rejects.toThrow(
      'It fails.',
    );
  }
  const app = await boot(new Payments());
  expect(liveServices.size).toBe(1);
  await expect(new Payments().pay()).resolves.toBe('paid');
  await app.close();
});

interface Order {
  id?: number;
}

async function run(...providers: (new (...args: never[]) => unknown)[]) {
  const warnings: string[] = [];
  const ignore = () => undefined;
  const logger = { log: ignore, error: ignore, warn: (text: string) => warnings.push(text) };
  const app = await start(
    { providers: providers as never },
    { logger, providers: { memory: new MemoryLockProvider() }, default: 'memory' },
  );
  return {
    app,
    locks: app.get(LockService),
    warnings: () => warnings.filter((text) => text.includes('instead of a value')),
  };
}

const remedy = 'Build it with lockKey, such as lockKey`order:${order.id}`, which rejects missing values.';

describe('a key that contains the text of a missing value', () => {
  it('is reported by every method of LockService, once for each first segment', async () => {
    const { locks, warnings } = await run();
    const order: Order = {};
    const calls = [
      async () => (await locks.acquire(`acquire:${order.id}`)).release(),
      async () => (await locks.tryAcquire(['order:1', `try:${order.id}:lines`]))?.release(),
      () => locks.via('memory').withLock(`with:${order.id}`, () => undefined),
      () => locks.runOnce(`once:${order.id}`, () => undefined, { minHold: 0 }),
      () => locks.runAsLeader(`lead:${order.id}`, async () => undefined, { signal: AbortSignal.abort() }),
    ];
    for (const call of [...calls, ...calls]) await call();
    const keys = ['acquire:undefined', 'try:undefined:lines', 'with:undefined', 'once:undefined', 'lead:undefined'];
    expect(warnings()).toEqual(
      keys.map(
        (key) =>
          `Lock key "${key}" contains the text "undefined" instead of a value, so all calls without the value share one lock. ${remedy}`,
      ),
    );
  });

  it('is reported once, with its method, if it comes from a key function', async () => {
    @Injectable()
    class Orders {
      @DistributedLock((order: Order) => `order:${order.id}`)
      async pay(order: Order) {
        return order;
      }
      @DistributedLock('order:#{order.name}')
      async ship(order: { name: string }) {
        return order;
      }
    }
    const { app, warnings } = await run(Orders);
    const orders = app.get(Orders);
    await orders.pay({ id: 1 });
    await orders.ship({ name: 'null' });
    expect(warnings()).toEqual([]);
    for (let call = 0; call < 3; call++) await orders.pay({});
    expect(warnings()).toEqual([
      `Lock key "order:undefined" contains the text "undefined" instead of a value, so all calls without the value share one lock. It comes from the key function of Orders.pay. ${remedy}`,
    ]);
  });

  it('is reported at boot if it is in a decorator', async () => {
    const region: string | undefined = process.env['NO_SUCH_REGION'];
    @Injectable()
    class Jobs {
      @RunOnce(`nightly:${region}`, { minHold: '1m' })
      async nightly() {}
      @DistributedLock(['orders', `order:${region}:#{id}`])
      async order(id: number) {
        return id;
      }
      @OnlyLeader(`leader:${region}`)
      async report() {}
      @DistributedLock('undefined-behavior:#{id}')
      async fine(id: number) {
        return id;
      }
    }
    const { warnings } = await run(Jobs);
    const why =
      'contains the text "undefined" instead of a value, since decorators run when their file is imported: make sure the value is set by then, or write #{…} for a per-call value.';
    expect(warnings()).toEqual([
      `The lock key "nightly:undefined" of Jobs.nightly ${why}`,
      `The lock key "order:undefined:#{id}" of Jobs.order ${why}`,
      `The lock key "leader:undefined" of Jobs.report ${why}`,
    ]);
  });
});
