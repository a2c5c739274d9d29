import { type DynamicModule, Get, Inject, Injectable, Module, Scope } from '@nestjs/common';
import { REQUEST } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import { Redis } from 'ioredis';
import { DataSource } from 'typeorm';
import {
  DistributedLock,
  DistributedLockModule,
  LockConfigError,
  LockService,
  LockUnavailableError,
  MemoryLockProvider,
  RunOnce,
} from '../../../lib/index.js';
import type { BackendContext } from '../../../lib/api/lock-provider.js';
import { CountingProvider } from '../../backend-context.js';
import { liveServices } from '../../../lib/nest/service/service-slot.js';
import { start } from '../apps.js';

class BriefProvider extends CountingProvider {
  protected override readonly capabilities = { maxLease: 60_000 };
}

class PlainProvider extends CountingProvider {
  protected override readonly capabilities = { shared: false, minHold: false, lease: 'session' as const };
}

async function failureOf(...args: Parameters<typeof start>): Promise<Error> {
  return (await start(...args).then(
    () => undefined,
    (error: unknown) => error,
  )) as Error;
}

describe('mistakes in locked methods', () => {
  @Injectable()
  class Orders {
    @DistributedLock('#{oder.id}')
    async misspelt(order: { id: string }) {
      return order;
    }
    @DistributedLock(['ok:#{id', 'b:#{id.__proto__}'])
    async malformed(id: string) {
      return id;
    }
    @DistributedLock([])
    async keyless() {}
    @DistributedLock('a', { provider: 'redis' })
    async elsewhere() {}
    @DistributedLock('a', { mode: 'shared' })
    async shared() {}
    @RunOnce('a', { minHold: '1m' })
    async parked() {}
    @DistributedLock('a', { lease: '1s' })
    async leased() {}
    @DistributedLock('a', { wait: -1 })
    async negative() {}
    @DistributedLock('#{ctx.tenant}:#{ctx.toString}')
    async tenant() {}
    @DistributedLock('#{id}', { around: 'request' })
    async early(id: string) {
      return id;
    }
    @DistributedLock(() => 'a', { around: 'request' })
    async earlyFunction() {}
    @DistributedLock('above')
    @DistributedLock('beneath', { around: 'request' })
    async covered() {}
    @DistributedLock('#{id}:#{request.params.id}')
    async later(id: string) {
      return id;
    }
    @Get()
    @DistributedLock('order:#{id}:#{request.params.id}:#{ctx.region}', { wait: '1m' })
    async fine(id: string) {
      return id;
    }
  }
  @Injectable({ scope: Scope.REQUEST })
  class MoreOrders extends Orders {}

  it('fail the boot with one list, after which nothing stays started', async () => {
    const provider = new PlainProvider();
    const error = await failureOf(
      { providers: [Orders, MoreOrders] },
      { provider, default: 'plain', context: { region: () => 'eu' } },
    );
    expect(error).toBeInstanceOf(LockConfigError);
    const [title, ...list] = error.message.split('\n');
    expect(title).toBe('These locked methods cannot work:');
    const expected = [
      /Orders\.misspelt.*no parameter 'oder' \(its parameters are: order\)/,
      /Orders\.malformed.*not closed/,
      /Orders\.malformed.*'__proto__' is never read/,
      /Orders\.keyless has no lock key/,
      /Orders\.elsewhere: There is no lock provider "redis": this application has "plain"/,
      /Orders\.shared: Lock provider "plain" does not support mode: 'shared'/,
      /Orders\.parked: Lock provider "plain" cannot keep a key locked after its release/,
      /Orders\.leased: Locks of provider "plain" live as long as its session/,
      /Orders\.negative: .*wait/,
      /Orders\.tenant: .*#\{ctx\.tenant\}.*has no "tenant"/,
      /Orders\.tenant: .*has no "toString"/,
      /Orders\.early: around: 'request'.*cannot come from them/,
      /Orders\.earlyFunction: around: 'request'/,
      /Orders\.later: its key reads #\{request…\}, but it is not a handler: read the value from an argument/,
      /Orders\.covered: a @DistributedLock is above one with around: 'request'.*must be outermost/,
    ];
    expect(list).toHaveLength(expected.length);
    for (const problem of expected) expect(list).toContainEqual(expect.stringMatching(problem));
    expect([provider.starts, provider.stops, liveServices.size]).toEqual([1, 1, 0]);
  });

  it('fail the boot with an error each if the types did not catch them', async () => {
    const Untyped = DistributedLock as (...args: unknown[]) => MethodDecorator;
    @Injectable()
    class Untidy {
      @Untyped()
      async keyless() {}
      @Untyped(['a', 42])
      async number() {}
      @Untyped('a', { onBusy: 'run' })
      async busy() {}
      @Untyped('a', { onBusy: 5 })
      async number5() {}
      @Untyped('a', { onLost: 'trow' })
      async lost() {}
      @Untyped('a', { around: 'reqest' })
      async around() {}
      @Untyped('a', { signal: new AbortController().signal })
      async signal() {}
      @Untyped('a', { around: 'request', signal: () => undefined })
      async early() {}
      @Untyped('a', { ttl: 5000 })
      async option() {}
      @Untyped('#{ids}')
      async rest(...ids: string[]) {
        return ids;
      }
    }
    const error = await failureOf({ providers: [Untidy] });
    expect(error).toBeInstanceOf(LockConfigError);
    expect(error.message.split('\n').slice(1)).toEqual([
      expect.stringMatching(/Untidy\.keyless has no lock key: pass @DistributedLock a template such as/),
      expect.stringMatching(/Untidy\.number has no lock key/),
      expect.stringMatching(/Untidy\.busy: Option "onBusy" is 'run', but must be 'throw', 'skip' or a function/),
      expect.stringMatching(/Untidy\.number5: Option "onBusy" is 5, but must be 'throw', 'skip' or a function/),
      expect.stringMatching(/Untidy\.lost: Option "onLost" is 'trow', but must be 'throw' or 'ignore'/),
      expect.stringMatching(/Untidy\.around: Option "around" is 'reqest', but must be 'method' or 'request'/),
      expect.stringMatching(/Untidy\.signal: Option "signal" is an? AbortSignal, but must be a function/),
      expect.stringMatching(/Untidy\.early: around: 'request' takes the lock before.*"signal" cannot come from them/),
      expect.stringMatching(/Untidy\.option: There is no option "ttl"/),
      expect.stringMatching(/Untidy\.rest.*'ids' is a rest parameter: write #\{args\[0\]\}/),
    ]);
  });

  it('fail the boot if the provider cannot keep a key that long', async () => {
    @Injectable()
    class Reports {
      @DistributedLock('a', { lease: '2m' })
      async leased() {}
      @RunOnce('b', { minHold: '2m' })
      async parked() {}
      @RunOnce('c', { minHold: '1m' })
      async fine() {}
    }
    const { message } = await failureOf({ providers: [Reports] }, { provider: new BriefProvider() });
    expect(message.split('\n').slice(1)).toEqual([
      expect.stringMatching(/Reports\.leased: Option "lease" is 120000 ms, which exceeds "maxLease".*60000 ms/),
      expect.stringMatching(/Reports\.parked: Option "minHold" is 120000 ms, which exceeds "maxLease".*60000 ms/),
    ]);
  });

  it('fail the call on an instance created outside Nest', async () => {
    await start({}, { context: { region: () => 'eu' } });
    await expect(new Orders().misspelt({ id: '1' })).rejects.toMatchObject({ name: 'LockKeyError' });
    await expect(new Orders().keyless()).rejects.toMatchObject({ name: 'LockKeyError' });
  });
});

describe('mistakes in the module', () => {
  it.each<[string, object, RegExp]>([
    [
      'both "provider" and "providers"',
      { provider: new MemoryLockProvider(), providers: {} },
      /both "provider" and "providers"/,
    ],
    [
      'no default',
      { providers: { a: new MemoryLockProvider(), b: new MemoryLockProvider() } },
      /several lock providers \("a", "b"\).*"default"/,
    ],
    ['an unknown default', { providers: { a: new MemoryLockProvider() }, default: 'b' }, /"default" is "b"/],
    ['no provider', { providers: {} }, /no lock provider/],
    ['a bad namespace', { namespace: 'a b' }, /"namespace" is 'a b'/],
    ['a bad default', { defaults: { wait: 'soon' } }, /wait/],
    ['a bad shutdownGrace', { shutdownGrace: Number.NaN }, /shutdownGrace/],
    ['an unknown option', { provder: 1 }, /^DistributedLockModule: there is no option "provder": write "provider"\.$/],
    ["another library's option", { retries: 1 }, /no option "retries": remove it\. The options are "provider", "/],
    [
      'an unknown option in "defaults"',
      { defaults: { minHold: '1m' } },
      /Option "defaults": there is no option "minHold": remove it\. The options are "wait", "lease", "maxHold", "reentrant", "onLost"/,
    ],
    ['another library\'s option in "defaults"', { defaults: { ttl: '10s' } }, /"ttl": write "lease"/],
    [
      'a class instead of a provider',
      { provider: MemoryLockProvider },
      /"provider" is the class MemoryLockProvider, but must be an instance: write new MemoryLockProvider/,
    ],
    [
      'a class in "providers"',
      { providers: { a: MemoryLockProvider } },
      /"providers\.a" is the class MemoryLockProvider/,
    ],
    [
      'undefined instead of a provider',
      { providers: { a: undefined } },
      /"providers\.a" is undefined, but must be a lock provider: write new RedisLockProvider/,
    ],
    [
      'two wrong providers',
      { providers: { a: MemoryLockProvider, b: 'redis' } },
      /"providers\.a" is the class MemoryLockProvider.*\n.*"providers\.b" is .*, but must be a lock provider/,
    ],
    [
      'a wrong lease in "defaults"',
      { defaults: { lease: '5' } },
      /Option "defaults\.lease" is '5', but must be a duration/,
    ],
    ['a wrong wait in "defaults"', { defaults: { wait: -1 } }, /Option "defaults\.wait" is -1/],
    ['a wrong onLost in "defaults"', { defaults: { onLost: 'trow' } }, /Option "defaults\.onLost" is 'trow'/],
    ['a wrong reentrant in "defaults"', { defaults: { reentrant: 'yes' } }, /Option "defaults\.reentrant" is 'yes'/],
    [
      'null instead of a provider',
      { provider: null },
      /"provider" is null, but must be a lock provider: write new Redis/,
    ],
    [
      'an array of providers',
      { providers: [new MemoryLockProvider()] },
      /"providers" is a list, but must be the lock providers by name/,
    ],
    [
      'the name of a server as an option',
      { redis: { host: 'r' } },
      /no option "redis": write provider: new RedisLockProvider\(\{ url/,
    ],
    ['a URL as an option', { url: 'redis://r' }, /no option "url": write provider: new RedisLockProvider\(\{ url/],
    [
      'a Postgres URL as an option',
      { url: 'postgres://db' },
      /"url": write provider: new SqlVersionLockProvider\(\{ url/,
    ],
    [
      'the name of another server instead of a provider',
      { provider: 'postgres' },
      /"provider" is a text, .* write new SqlVersionLockProvider\(\{ url/,
    ],
    [
      'a client instead of a provider',
      { provider: { duplicate: () => undefined } },
      /"provider" is a client, but must be a lock provider: write new RedisLockProvider\(\{ client \}\)/,
    ],
    [
      'the name of a server instead of a provider',
      { provider: 'redis' },
      /"provider" is a text, but must be a lock provider: write new RedisLockProvider\(\{ url/,
    ],
  ])('fail the boot: %s', async (_, options, message) => {
    const error = await failureOf({}, options);
    expect(error).toBeInstanceOf(LockConfigError);
    expect(error.message).toMatch(message);
    expect(liveServices.size).toBe(0);
  });

  it('fail the boot: a factory that returns no options', async () => {
    const module = DistributedLockModule.forRootAsync({ useFactory: () => undefined as never });
    const error = await failureOf({ imports: [module] }, null);
    expect(error).toBeInstanceOf(LockConfigError);
    expect(error.message).toMatch(/must be an object: return one from the forRootAsync/);
  });

  it('make forRoot() throw: a lock provider instead of options', () => {
    expect(() => DistributedLockModule.forRoot(new MemoryLockProvider() as never)).toThrow(
      /options of DistributedLockModule cannot be a lock provider: pass \{ provider: new MemoryLockProvider/,
    );
  });

  it.each([
    [new Redis({ lazyConnect: true }), 'a client: pass { provider: new RedisLockProvider({ client }) }'],
    [new DataSource({ type: 'postgres' }), 'a client: pass { provider: new TypeOrmVersionLockProvider({ dataSource'],
  ])('make forRoot() throw: a client instead of options (%#)', (client, message) => {
    expect(() => DistributedLockModule.forRoot(client as never)).toThrow(message);
  });

  it('fail the boot: a factory that returns a lock provider', async () => {
    const module = DistributedLockModule.forRootAsync({ useFactory: () => new MemoryLockProvider() as never });
    const error = await failureOf({ imports: [module] }, null);
    expect(error).toBeInstanceOf(LockConfigError);
    expect(error.message).toMatch(
      /options of DistributedLockModule cannot be a lock provider: pass \{ provider: new MemoryLockProvider\(…\) \}/,
    );
  });

  it('fail the boot: a second forRoot(), after which both are stopped', async () => {
    const [one, other] = [new CountingProvider(), new CountingProvider()];
    @Module({ imports: [DistributedLockModule.forRoot({ provider: other })] })
    class FeatureModule {}
    const error = await failureOf({ imports: [FeatureModule] }, { provider: one });
    expect(error).toMatchObject({
      name: 'LockConfigError',
      message: expect.stringMatching(/more than once/) as string,
    });
    expect([one.stops, other.stops, liveServices.size]).toEqual([1, 1, 0]);
  });

  it('one forRoot() may be imported in two modules', async () => {
    const shared: DynamicModule = DistributedLockModule.forRoot();
    @Module({ imports: [shared] })
    class FeatureModule {}
    await expect(start({ imports: [FeatureModule, shared] }, null)).resolves.toBeDefined();
  });

  it('one module definition serves several applications, one after another and at the same time', async () => {
    const provider = new CountingProvider();
    const shared = DistributedLockModule.forRoot({ provider });
    for (let round = 0; round < 2; round += 1) {
      const [one, other] = [await start({ imports: [shared] }, null), await start({ imports: [shared] }, null)];
      await expect(one.get(LockService).withLock('a', () => 'one')).resolves.toBe('one');
      await one.close();
      await expect(other.get(LockService).withLock('a', () => 'other')).resolves.toBe('other');
      await other.close();
    }
    expect([provider.starts, provider.stops]).toEqual([4, 4]);
  });

  it('fail the boot: options that depend on a request', async () => {
    @Injectable()
    class Orders {
      @DistributedLock('a')
      async pay() {}
    }
    const module = DistributedLockModule.forRootAsync({ inject: [REQUEST], useFactory: () => ({}) });
    const error = await failureOf({ imports: [module], providers: [Orders] }, null);
    // Nest 12 refuses our interceptor before our binder can explain the mistake. On Nest 11, the binder throws.
    expect(error.message).toMatch(/LockRequestInterceptor.*depends on a request-scoped provider/);
  });
});

describe('a backend that is down', () => {
  class DownProvider extends CountingProvider {
    override createBackend(context: BackendContext) {
      const connect = () => Promise.reject(new LockUnavailableError('Nobody listens at port 1.'));
      return Object.assign(super.createBackend(context), { connect });
    }
  }

  it('fails the boot, after which nothing stays started', async () => {
    const [up, down] = [new CountingProvider(), new DownProvider()];
    const error = await failureOf({}, { providers: { up, down }, default: 'up' });
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect([up.stops, down.stops, liveServices.size]).toEqual([1, 1, 0]);
  });

  it('does not fail the boot if failFast is false', async () => {
    await expect(start({}, { provider: new DownProvider(), failFast: false })).resolves.toBeDefined();
  });
});

it('the error for a missing LockService recommends the module, or the stub in a unit test', async () => {
  @Injectable()
  class Orders {
    @DistributedLock('a')
    async pay() {}
  }
  const testing = Test.createTestingModule({ providers: [Orders] });
  await expect(testing.compile()).rejects.toThrow(
    /dependencies of the Orders.*import DistributedLockModule\.forRoot\(\) in the root module; in a unit test, add provideLockServiceStub\(\) to the providers/s,
  );
});

it('locks work during the boot, in factories whose results constructors need', async () => {
  const seen: string[] = [];
  @Injectable()
  class Early {
    constructor(@Inject('READY') ready: string) {
      seen.push(ready);
    }
  }
  const ready = {
    provide: 'READY',
    inject: [LockService],
    useFactory: (locks: LockService) => locks.withLock('boot', ({ key }) => key),
  };
  await start({ providers: [Early, ready] });
  expect(seen).toEqual(['boot']);
});

it('the error names each provider that cannot be reached or is refused', async () => {
  class Failing extends CountingProvider {
    constructor(private readonly error: () => Error) {
      super();
    }
    override createBackend(context: BackendContext) {
      const backend = super.createBackend(context);
      backend.connect = () => Promise.reject(this.error());
      return backend;
    }
  }
  const down = new Failing(() => new LockUnavailableError('The first is down.'));
  const refused = new Failing(() => new LockConfigError('The second refuses the login.', { refused: true }));
  const both = await failureOf({}, { providers: { down, refused }, default: 'down' });
  expect(both).toBeInstanceOf(LockConfigError);
  expect(both).toMatchObject({ refused: false });
  expect(both.message).toMatch(/The first is down\..*\n.*The second refuses the login\./);
  const outage = await failureOf({}, { providers: { down, other: down }, default: 'down' });
  expect(outage).toBeInstanceOf(LockUnavailableError);
});
