import { Controller, Get, Injectable, Scope, type Type } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { from, lastValueFrom, Observable, toArray } from 'rxjs';
import {
  DistributedLock,
  DistributedLockModule,
  LockConfigError,
  LockDefaults,
  type LockEvent,
  LockService,
  OnlyLeader,
  RunAsLeader,
  RunOnce,
} from '../../../lib/index.js';
import { DistributedLockTestingModule, provideLockServiceStub } from '../../../lib/testing/index.js';
import { serve, start, until } from '../apps.js';
import { ScriptedProvider } from '../../core/scripted-provider.js';

/** Behaves like `ConfigService` of `@nestjs/config`. */
@Injectable()
class ConfigService {
  reads = 0;
  protected readonly values: Readonly<Record<string, string>> = { LEASE: '45s', WAIT: '2s', AT_LEAST: '1m' };

  get(name: string): string | undefined {
    this.reads += 1;
    return this.values[name];
  }

  getOrThrow(name: string): string {
    const value = this.get(name);
    if (value === undefined) throw new TypeError(`Configuration key "${name}" does not exist`);
    return value;
  }
}

@Injectable()
@LockDefaults((config: ConfigService) => ({ wait: config.get('WAIT'), lease: '10s' }))
class Orders {
  @DistributedLock('order:#{id}', (config: ConfigService) => ({
    lease: config.get('LEASE'),
    maxHold: config.get('ABSENT'),
  }))
  async pay(id: number): Promise<number> {
    return id;
  }

  @DistributedLock('busy', (config: ConfigService) => ({ lease: config.get('LEASE'), onBusy: 'skip' }))
  async skip(): Promise<string | undefined> {
    return 'ran';
  }

  @DistributedLock('handled', (_: ConfigService) => ({ wait: 0, onBusy: () => 'answered' }))
  async handled(): Promise<string> {
    return 'ran';
  }

  @RunOnce('nightly', (config: ConfigService) => ({ minHold: config.getOrThrow('AT_LEAST') }))
  async report(): Promise<void> {}
}

@Injectable({ scope: Scope.REQUEST })
class ScopedOrders extends Orders {}

@Controller()
@LockDefaults((config: ConfigService) => ({ lease: config.get('LEASE') }))
class Routes {
  @Get()
  @DistributedLock('route', { around: 'request' })
  async get(): Promise<string> {
    return 'ran';
  }
}

const settings = (stub: ReturnType<typeof provideLockServiceStub>) =>
  Object.fromEntries(
    stub.calls.map(
      ({ method, wait, lease, minHold, maxHold }) => [String(method), { wait, lease, minHold, maxHold }] as const,
    ),
  );

describe('options from configuration', () => {
  it('are read once, and override those of the class, which may be a function too', async () => {
    const config = new ConfigService();
    const stub = provideLockServiceStub({ config });
    const module = await Test.createTestingModule({ providers: [Orders, ScopedOrders, stub] }).compile();
    for (const orders of [module.get(Orders), await module.resolve(ScopedOrders)]) {
      for (const id of [1, 2, 3]) await orders.pay(id);
      await orders.report();
      await orders.skip();
    }
    expect(settings(stub)).toEqual({
      'Orders.pay': { wait: 2_000, lease: 45_000, minHold: 0, maxHold: Infinity },
      'Orders.report': { wait: 0, lease: 10_000, minHold: 60_000, maxHold: Infinity },
      'Orders.skip': { wait: 0, lease: 45_000, minHold: 0, maxHold: Infinity },
    });
    // Once for the class and once for each method.
    expect(config.reads).toBe(5);
  });

  it('are read from what forRootAsync injects, in every scope and on a controller', async () => {
    const app = await serve(
      {
        imports: [
          DistributedLockModule.forRootAsync({
            imports: [{ module: class ConfigModule {}, providers: [ConfigService], exports: [ConfigService] }],
            inject: [ConfigService],
            useFactory: (config: ConfigService) => ({ config, shutdownGrace: 0 }),
          }),
        ],
        providers: [Orders, ScopedOrders],
        controllers: [Routes],
      },
      null,
    );
    const locks = app.app.get(LockService);
    const taken: LockEvent[] = [];
    locks.events.on('acquired', (event) => taken.push(event));
    await expect((await app.app.resolve(ScopedOrders)).pay(7)).resolves.toBe(7);
    await locks.acquire('busy');
    await locks.acquire('handled');
    await expect(app.app.get(Orders).skip()).resolves.toBeUndefined();
    await expect(app.app.get(Orders).handled()).resolves.toBe('answered');
    expect(await (await app.fetch('/')).text()).toBe('ran');
    expect(taken.map(({ method }) => method)).toEqual(['Orders.pay', null, null, 'Routes.get']);
  });

  it('are read separately in each application that contains the class', async () => {
    class Slow extends ConfigService {
      protected override readonly values = { LEASE: '2m', WAIT: '1s', AT_LEAST: '1m' };
    }
    const stubs = [new ConfigService(), new Slow()].map((config) => provideLockServiceStub({ config }));
    for (const stub of stubs) {
      const module = await Test.createTestingModule({ providers: [Orders, stub] }).compile();
      await module.get(Orders).pay(1);
    }
    expect(stubs.map(({ calls }) => calls[0]?.lease)).toEqual([45_000, 120_000]);
  });

  it('work for leaders, and in the testing module', async () => {
    @Injectable()
    @LockDefaults((config: ConfigService) => ({ lease: config.get('WAIT'), provider: 'main' }))
    class Billing {
      @RunAsLeader('billing', (config: ConfigService) => ({ lease: config.get('LEASE') }))
      async run(): Promise<void> {
        await new Promise(() => undefined);
      }

      @OnlyLeader('billing', (_: ConfigService) => ({ provider: 'main' }))
      async report(): Promise<string | undefined> {
        return 'sent';
      }
    }
    const module = await Test.createTestingModule({
      imports: [
        DistributedLockTestingModule.forRoot({ config: new ConfigService(), default: 'main', shutdownGrace: 0 }),
      ],
      providers: [Billing],
    }).compile();
    await module.init();
    await until(() => module.get(LockService).isLeader('billing'));
    await expect(module.get(Billing).report()).resolves.toBe('sent');
    await module.close();
  });

  it('fail the boot if they are invalid, each error with its method', async () => {
    @Injectable()
    @LockDefaults((config: ConfigService) => ({ lease: config.getOrThrow('CLASS_LEASE') }))
    class Defaults {
      @DistributedLock('defaults')
      async run(): Promise<void> {}
    }
    const Untyped = DistributedLock as (...args: unknown[]) => MethodDecorator;
    @Injectable()
    class Wrong {
      @DistributedLock('a', (config: ConfigService) => ({ lease: config.getOrThrow('NOWHERE') }))
      async absent(): Promise<void> {}
      @DistributedLock('a', (_: ConfigService) => ({ wait: '5 parsecs' }))
      async unit(): Promise<void> {}
      @Untyped('a', () => Promise.resolve({ wait: 0 }))
      async promise(): Promise<void> {}
      @Untyped('a', () => ({ around: 'request' }))
      async around(): Promise<void> {}
      @Untyped('a', () => ({ ttl: 5 }))
      async unknown(): Promise<void> {}
      @RunOnce('a', (config: ConfigService) => ({ minHold: config.get('NOWHERE') as string }))
      async once(): Promise<void> {}
      @RunAsLeader('a', (_: ConfigService) => ({ lease: 'soon' }))
      async lead(): Promise<void> {}
      @DistributedLock('a', (config: ConfigService) => ({ wait: config.get('WAIT') }))
      async fine(): Promise<void> {}
    }
    const problems = await problemsOf([Defaults, Wrong], new ConfigService());
    expect(problems).toEqual([
      expect.stringMatching(
        /Defaults\.run: the options of @LockDefaults cannot be read .*: Configuration key "CLASS_LEASE" does not exist/,
      ),
      expect.stringMatching(
        /Wrong\.absent: the options of @DistributedLock cannot be read .*: Configuration key "NOWHERE" does not exist/,
      ),
      expect.stringMatching(/Wrong\.unit: Option "wait" is '5 parsecs'/),
      expect.stringMatching(/Wrong\.promise: .* the function returned a promise: read the configuration synchronously/),
      expect.stringMatching(/Wrong\.around: option "around" cannot come from the configuration/),
      expect.stringMatching(/Wrong\.unknown: There is no option "ttl"/),
      expect.stringMatching(/Wrong\.once: @RunOnce has no "minHold"/),
      expect.stringMatching(/Wrong\.lead: @RunAsLeader: "lease" is 'soon'/),
    ]);
  });

  it('report what to add if the module has no config', async () => {
    const problems = await problemsOf([Orders], undefined);
    expect(problems).toHaveLength(4);
    expect(problems[0]).toMatch(
      /Orders\.pay: .* DistributedLockModule has no "config": add it to the options, as in forRootAsync/,
    );
    const module = await Test.createTestingModule({ providers: [Orders, provideLockServiceStub()] }).compile();
    await expect(module.get(Orders).pay(1)).rejects.toThrow(LockConfigError);
  });
});

async function problemsOf(providers: Type[], config: unknown): Promise<string[]> {
  const error: unknown = await start({ providers }, { config }).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(LockConfigError);
  return (error as Error).message.split('\n').slice(1);
}

@Injectable()
@LockDefaults({ release: 'sent' })
class SentOrders {
  @DistributedLock('call:#{id}')
  async call(id: string): Promise<string> {
    return Promise.resolve(id);
  }

  @DistributedLock('observable:#{id}')
  observe(id: string): Observable<string> {
    return from([id]);
  }

  @DistributedLock('iteration:#{id}')
  async *iterate(id: string): AsyncGenerator<string> {
    yield await Promise.resolve(id);
  }

  @DistributedLock('confirmed:#{id}', { release: 'confirmed' })
  async confirmed(id: string): Promise<string> {
    return Promise.resolve(id);
  }
}

function silentAtRelease(): ScriptedProvider {
  const provider = ScriptedProvider.obliging({ ordered: true });
  provider.onRelease = undefined;
  return provider;
}

it.each([
  ['a promise', async (orders: SentOrders) => orders.call('1')],
  ['an Observable', async (orders: SentOrders) => (await lastValueFrom(orders.observe('1').pipe(toArray()))).join()],
  [
    'a generator that its consumer leaves',
    async (orders: SentOrders) => {
      for await (const id of orders.iterate('1')) return id;
      return '';
    },
  ],
])("release: 'sent' on a class: %s ends before its release is confirmed", async (_, call) => {
  const provider = silentAtRelease();
  const app = await start({ providers: [SentOrders] }, { provider });
  expect(await call(app.get(SentOrders))).toBe('1');
  expect(provider.releases).toHaveLength(1);
  provider.releases[0]?.answer('released');
});

it("release: 'confirmed' on a method waits for the confirmation", async () => {
  const provider = silentAtRelease();
  const app = await start({ providers: [SentOrders] }, { provider });
  let isOver = false;
  const call = app
    .get(SentOrders)
    .confirmed('1')
    .then(() => (isOver = true));
  while (provider.releases.length === 0) await new Promise((resolve) => setImmediate(resolve));
  await new Promise((resolve) => setImmediate(resolve));
  expect(isOver).toBe(false);
  provider.releases[0]?.answer('released');
  await call;
});

it("release: 'sent' as a default of the module applies to calls of LockService too", async () => {
  const provider = silentAtRelease();
  const app = await start({}, { provider, defaults: { release: 'sent' } });
  expect(await app.get(LockService).withLock('k', () => 1)).toBe(1);
  provider.releases[0]?.answer('released');
});

it("release: 'sent' fails the boot and names the method if the provider does not keep commands in order", async () => {
  const boot = start({ providers: [SentOrders] }, { provider: new ScriptedProvider() });
  await expect(boot).rejects.toThrow(/SentOrders\.call.*release: 'sent'/s);
});
