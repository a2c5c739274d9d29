import { Readable } from 'node:stream';
import { Injectable, type LoggerService, type OnApplicationBootstrap, Scope } from '@nestjs/common';
import { Cron, Interval, ScheduleModule } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import {
  currentLock,
  DistributedLock,
  DistributedLockModule,
  type LeaderTerm,
  LockAdmin,
  LockConfigError,
  LockDefaults,
  LockManager,
  LockService,
  MemoryLockProvider,
  MemoryStore,
  OnlyLeader,
  RunAsLeader,
} from '../../lib/index.js';
import { DistributedLockTestingModule, provideLockServiceStub, TestLocks } from '../../lib/testing/index.js';
import { close, Gate, start, until } from './apps.js';

const aborted = (signal: AbortSignal) =>
  new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));

/** Returns a function that creates options for applications on one store. */
function shared() {
  const store = new MemoryStore();
  return () => ({ provider: new MemoryLockProvider({ store }) });
}

describe('@RunAsLeader', () => {
  @Injectable()
  class Billing {
    readonly terms: LeaderTerm[] = [];
    readonly during: (string | undefined)[] = [];

    @RunAsLeader('billing')
    async run(term: LeaderTerm) {
      this.terms.push(term);
      this.during.push(currentLock().key);
      await aborted(term.signal);
    }
  }

  it('runs the method in one application, and in the next after the first has stopped', async () => {
    const options = shared();
    const one = await start({ providers: [Billing] }, { ...options(), shutdownGrace: '10s' });
    const first = one.get(Billing);
    await until(() => first.terms.length === 1);
    const resigned: object[] = [];
    one.get(LockService).events.on('resigned', (event) => resigned.push(event));
    const other = await start({ providers: [Billing] }, options());
    const second = other.get(Billing);
    expect([one, other].map((app) => app.get(LockService).isLeader('billing'))).toEqual([true, false]);
    expect(second.terms).toHaveLength(0);
    await close(one);
    expect(resigned).toMatchObject([
      { key: 'billing', method: 'Billing.run', template: 'billing', reason: 'shutdown' },
    ]);
    await until(() => second.terms.length === 1);
    expect(second.terms[0]!.fencingToken! > first.terms[0]!.fencingToken!).toBe(true);
    expect([first.during, second.during]).toEqual([['billing'], ['billing']]);
  });

  it('runs the method after all hooks of the boot', async () => {
    const seen: string[] = [];
    @Injectable()
    class Prices implements OnApplicationBootstrap {
      async onApplicationBootstrap() {
        await new Promise((resolve) => setTimeout(resolve, 50));
        seen.push('booted');
      }
      @RunAsLeader('prices')
      async run({ signal }: LeaderTerm) {
        seen.push('leads');
        await aborted(signal);
      }
    }
    await start({ providers: [Prices] });
    await until(() => seen.length === 2);
    expect(seen).toEqual(['booted', 'leads']);
  });

  it('resigns before other providers close their connections', async () => {
    const steps: string[] = [];
    @Injectable()
    class Connection {
      beforeApplicationShutdown() {
        steps.push('connection closes');
      }
    }
    @Injectable()
    class Worker {
      @RunAsLeader('billing')
      async run({ signal }: LeaderTerm) {
        await aborted(signal);
        steps.push('task ends');
      }
    }
    const app = await start({ providers: [Connection, Worker] });
    await until(() => app.get(LockService).isLeader('billing'));
    await close(app);
    expect(steps).toEqual(['task ends', 'connection closes']);
  });

  it('calls the method as other decorators wrapped it, whatever their order', async () => {
    const steps: string[] = [];
    const Traced: MethodDecorator = (_, name, descriptor: PropertyDescriptor) => {
      const original = descriptor.value as (...args: unknown[]) => unknown;
      descriptor.value = function (this: unknown, ...args: unknown[]) {
        steps.push(`traced ${String(name)}`);
        return original.apply(this, args);
      };
    };
    @Injectable()
    class Above {
      @Traced
      @RunAsLeader('above')
      async above({ signal }: LeaderTerm) {
        await aborted(signal);
      }
      @RunAsLeader('below')
      @Traced
      async below({ signal }: LeaderTerm) {
        await aborted(signal);
      }
    }
    const app = await start({ providers: [Above] });
    await until(() => ['above', 'below'].every((key) => app.get(LockService).isLeader(key)));
    expect(steps.sort()).toEqual(['traced above', 'traced below']);
  });

  it('fails the boot without the lock module', async () => {
    const boot = Test.createTestingModule({ providers: [Billing] }).compile();
    await expect(boot).rejects.toThrow('import DistributedLockModule.forRoot() in the root module');
  });

  it('uses the default provider of its class', async () => {
    @LockDefaults({ provider: 'second' })
    @Injectable()
    class Prices {
      @RunAsLeader('prices')
      async follow({ signal }: LeaderTerm) {
        await aborted(signal);
      }
      @OnlyLeader('prices')
      async read(): Promise<string | undefined> {
        return currentLock().provider;
      }
    }
    const providers = { first: new MemoryLockProvider(), second: new MemoryLockProvider() };
    const app = await start({ providers: [Prices] }, { providers, default: 'first' });
    const locks = app.get(LockService);
    await until(() => locks.via('second').isLeader('prices'));
    expect(locks.isLeader('prices')).toBe(false);
    await expect(app.get(Prices).read()).resolves.toBe('second');
    await close(app);
  });

  it("keeps its class's provider and lease if its own are undefined", async () => {
    @LockDefaults({ provider: 'second', lease: '2m' })
    @Injectable()
    class Prices {
      @RunAsLeader('prices', () => ({ provider: undefined, lease: undefined }))
      async follow({ signal }: LeaderTerm) {
        await aborted(signal);
      }
    }
    const providers = { first: new MemoryLockProvider(), second: new MemoryLockProvider() };
    const app = await start({ providers: [Prices] }, { providers, default: 'first', config: {} });
    await until(() => app.get(LockService).via('second').isLeader('prices'));
    const held = app.get(LockAdmin).held();
    expect(held).toMatchObject([{ key: 'prices', provider: 'second' }]);
    // The default lease is 30 s.
    expect(held[0]!.remaining).toBeGreaterThan(60_000);
  });

  /** Returns a service whose method fails in its first term. */
  function failingOnceWith(error: unknown) {
    @Injectable()
    class Fragile {
      runs = 0;
      @RunAsLeader('billing')
      async run({ signal }: LeaderTerm) {
        this.runs += 1;
        if (this.runs === 1) throw error;
        await aborted(signal);
      }
    }
    return Fragile;
  }

  it('logs an error of the method, and campaigns again', async () => {
    const lines: string[] = [];
    const logger = {
      ...{ log: () => {}, warn: () => {}, debug: () => {} },
      error: (message: string) => lines.push(message),
    } as unknown as LoggerService;
    const Fragile = failingOnceWith(new Error('no connection'));
    const app = await start({ providers: [Fragile] }, { logger });
    await until(() => app.get(Fragile).runs === 2);
    expect(lines).toEqual([
      expect.stringMatching(/^Fragile\.run failed as leader of "billing"; campaigning again\. Error: no connection/),
    ]);
  });

  it.each<[string, object, () => void]>([
    ['an error that has no text', Object.create(null) as object, () => undefined],
    [
      'an error that the logger cannot report',
      new Error('no connection'),
      () => {
        throw new Error('The log is closed.');
      },
    ],
  ])('campaigns again after %s', async (_, error, log) => {
    const Fragile = failingOnceWith(error);
    const logger: LoggerService = { log: () => {}, warn: () => {}, debug: () => {}, error: log };
    const app = await start({ providers: [Fragile] }, { logger });
    await until(() => app.get(Fragile).runs === 2);
    expect(app.get(LockService).isLeader('billing')).toBe(true);
  });

  it("works on a factory's instance and on an inherited method, and calls an override instead", async () => {
    const runs: string[] = [];
    abstract class Base {
      @RunAsLeader('inherited')
      async run({ signal }: LeaderTerm) {
        runs.push(this.constructor.name);
        await aborted(signal);
      }
    }
    @Injectable()
    class Sub extends Base {
      override async run(term: LeaderTerm) {
        runs.push('override');
        await super.run(term);
      }
    }
    class Made extends Base {
      @RunAsLeader('made')
      override run(term: LeaderTerm) {
        return super.run(term);
      }
    }
    const made = new Made();
    const app = await start({
      providers: [Sub, { provide: 'made', useFactory: () => made }, { provide: 'alias', useValue: made }],
    });
    await until(() => runs.length === 3);
    expect(runs.sort()).toEqual(['Made', 'Sub', 'override']);
    expect(app.get(LockService).isLeader('made')).toBe(true);
  });
});

describe('mistakes in leader methods', () => {
  @Injectable()
  class Mistaken {
    @RunAsLeader('tenant:#{tenant}')
    async template() {}
    @RunAsLeader('')
    async empty() {}
    @RunAsLeader('a', { provider: 'redis' })
    async elsewhere() {}
    @RunAsLeader('same')
    async one() {}
    @RunAsLeader('same')
    async other() {}
    @OnlyLeader('#{tenant}')
    async only(): Promise<void> {}
    @OnlyLeader('b', { provider: 'redis' })
    async onlyElsewhere(): Promise<void> {}
    @DistributedLock('#{oder}')
    async locked(order: string) {
      return order;
    }
  }
  @Injectable({ scope: Scope.REQUEST })
  class OfRequest {
    @RunAsLeader('of-request')
    async run() {}
  }
  @Injectable({ scope: Scope.TRANSIENT })
  class Transient {
    @RunAsLeader('transient')
    async run() {}
  }

  it('fail the boot in one list with mistakes in locked methods', async () => {
    const error: unknown = await start({ providers: [Mistaken, OfRequest, Transient] }).catch((each: unknown) => each);
    expect(error).toBeInstanceOf(LockConfigError);
    const [, ...list] = (error as Error).message.split('\n');
    const expected = [
      /Mistaken\.locked.*no parameter 'oder'/,
      /Mistaken\.template: @RunAsLeader needs a fixed key.*"tenant:#\{tenant\}" is a template/,
      /Mistaken\.empty: A lock key must not be empty/,
      /Mistaken\.elsewhere: There is no lock provider "redis"/,
      /Mistaken\.other: Mistaken\.one already leads "same"/,
      /Mistaken\.only: @OnlyLeader needs a fixed key/,
      /Mistaken\.onlyElsewhere: There is no lock provider "redis"/,
      /OfRequest\.run: its provider is request-scoped or transient/,
      /Transient\.run: its provider is request-scoped or transient/,
    ];
    expect(list).toHaveLength(expected.length);
    for (const problem of expected) expect(list).toContainEqual(expect.stringMatching(problem));
  });

  it('fail the boot if a class has two instances', async () => {
    @Injectable()
    class Twice {
      @RunAsLeader('twice')
      async run() {}
    }
    const providers = [Twice, { provide: 'again', useClass: Twice }];
    await expect(start({ providers })).rejects.toThrow(/Twice\.run: Twice\.run already leads "twice"/);
  });

  it('fail at decoration if the method cannot wait', () => {
    const Untyped = [RunAsLeader, OnlyLeader] as unknown as ((key: string) => MethodDecorator)[];
    for (const decorator of Untyped) {
      class Synchronous {
        static still() {}
        *generator() {}
        async *stream() {}
      }
      const decorate = (target: object, name: string) => () =>
        decorator('a')(target, name, Object.getOwnPropertyDescriptor(target, name)!);
      expect(decorate(Synchronous.prototype, 'generator')).toThrow('Synchronous.generator is synchronous');
      expect(decorate(Synchronous.prototype, 'stream')).toThrow('Synchronous.stream returns a stream');
      expect(decorate(Synchronous, 'still')).toThrow('Synchronous.still is static');
    }
  });

  it('fail the boot if an option does not exist', async () => {
    @Injectable()
    class Options {
      @OnlyLeader('a', { lease: '1s' } as object)
      async lease(): Promise<void> {}
      @RunAsLeader('b', { signal: AbortSignal.abort() } as object)
      async signal() {}
    }
    const error: unknown = await start({ providers: [Options] }).catch((each: unknown) => each);
    expect((error as Error).message).toMatch(
      /@OnlyLeader: there is no option "lease": remove it\. The options are "provider"\./,
    );
    expect((error as Error).message).toMatch(
      /@RunAsLeader: there is no option "signal": remove it\. The options are "provider", "lease"\./,
    );
  });
});

describe('@OnlyLeader', () => {
  @Injectable()
  class Reports {
    readonly seen: unknown[] = [];

    @OnlyLeader('billing')
    async report(name: string): Promise<string | undefined> {
      this.seen.push(currentLock('billing').fencingToken);
      return `report ${name}`;
    }
  }

  it('runs only in the process that leads, and campaigns even without @RunAsLeader', async () => {
    const options = shared();
    const one = await start({ providers: [Reports] }, options());
    await until(() => one.get(LockService).isLeader('billing'));
    const other = await start({ providers: [Reports] }, options());
    const asked: string[] = [];
    const skipped: object[] = [];
    for (const name of ['acquired', 'busy', 'waiting'] as const) {
      for (const app of [one, other]) app.get(LockService).events.on(name, () => asked.push(name));
    }
    other.get(LockService).events.on('skipped', (event) => skipped.push(event));
    await expect(one.get(Reports).report('a')).resolves.toBe('report a');
    await expect(other.get(Reports).report('a')).resolves.toBeUndefined();
    expect(asked).toEqual([]);
    const origin = { method: 'Reports.report', template: 'billing' };
    expect(skipped).toEqual([
      { key: 'billing', provider: 'default', mode: 'exclusive', ...origin, reason: 'not-leader' },
    ]);
    await close(one);
    await until(() => other.get(LockService).isLeader('billing'));
    await expect(other.get(Reports).report('b')).resolves.toBe('report b');
    expect(other.get(Reports).seen[0]! > one.get(Reports).seen[0]!).toBe(true);
  });

  it('joins the campaign of @RunAsLeader, if there is one', async () => {
    @Injectable()
    class Billing {
      readonly ended = new Gate();
      @RunAsLeader('billing')
      async run() {
        await this.ended.opened;
      }
    }
    const app = await start({ providers: [Billing, Reports] });
    expect(app.get(LockService).leadership.campaigns).toHaveLength(1);
    await until(() => app.get(LockService).isLeader('billing'));
    await expect(app.get(Reports).report('a')).resolves.toBe('report a');
    app.get(Billing).ended.open();
    await until(() => !app.get(LockService).isLeader('billing'));
    await expect(app.get(Reports).report('a')).resolves.toBeUndefined();
  });

  it('refuses a stream, because it would be read without the lock', async () => {
    @Injectable()
    class Exports {
      @OnlyLeader('exports')
      async file(): Promise<Readable | undefined> {
        return Readable.from(['a']);
      }
    }
    const app = await start({ providers: [Exports] });
    await until(() => app.get(LockService).isLeader('exports'));
    await expect(app.get(Exports).file()).rejects.toThrow('Exports.file returns a stream');
  });

  it('passes on errors of the method, and keeps the lock until it ends, even during shutdown', async () => {
    const steps: string[] = [];
    @Injectable()
    class Slow {
      readonly begun = new Gate();
      readonly end = new Gate();
      @OnlyLeader('slow')
      async report(): Promise<void> {
        this.begun.open();
        await this.end.opened;
        steps.push('end');
        throw new Error('its own');
      }
    }
    const app = await start({ providers: [Slow] }, { shutdownGrace: '10s' });
    const [slow, locks] = [app.get(Slow), app.get(LockService)];
    await until(() => locks.isLeader('slow'));
    locks.events.on('released', () => steps.push('released'));
    const run = slow.report();
    run.catch(() => undefined);
    await slow.begun.opened;
    const closing = close(app);
    await until(() => !locks.isLeader('slow'));
    slow.end.open();
    await expect(run).rejects.toThrow('its own');
    await closing;
    expect(steps).toEqual(['end', 'released']);
  });

  it('keeps the metadata of @Cron and @Interval, above and below', async () => {
    const runs = { above: 0, below: 0 };
    @Injectable()
    class Jobs {
      @Interval(5)
      @OnlyLeader('jobs')
      async above(): Promise<void> {
        runs.above += 1;
      }
      @OnlyLeader('jobs')
      @Interval(5)
      async below(): Promise<void> {
        runs.below += 1;
      }
      @Cron('0 0 1 1 *')
      @OnlyLeader('never')
      async yearly(): Promise<void> {}
    }
    const options = shared();
    const rival = await start({}, options());
    const lock = await rival.get(LockService).acquire('jobs');
    const app = await start({ imports: [ScheduleModule.forRoot()], providers: [Jobs] }, options());
    let skipped = 0;
    app.get(LockService).events.on('skipped', () => (skipped += 1));
    await until(() => skipped >= 6);
    expect(runs).toEqual({ above: 0, below: 0 });
    await lock.release();
    await until(() => runs.above > 0 && runs.below > 0);
  });

  it('reports what is missing outside an application', async () => {
    await expect(new Reports().report('a')).rejects.toThrow(/Reports\.report was called before Nest injected/);
  });
});

describe('leadership in tests of an application', () => {
  @Injectable()
  class Billing {
    charged = 0;
    constructor(private readonly locks: LockService) {}

    async lead(signal: AbortSignal) {
      await this.locks.runAsLeader('billing', async () => (this.charged += 1), { signal });
    }
    @RunAsLeader('billing')
    async run(term: Pick<LeaderTerm, 'signal'>) {
      this.charged += 1;
      await aborted(term.signal);
    }
    @OnlyLeader('billing')
    async report(): Promise<string | undefined> {
      return currentLock().key;
    }
  }

  it('the stub leads immediately, unless the key is busy', async () => {
    const stub = provideLockServiceStub();
    const module = await Test.createTestingModule({ providers: [Billing, stub] }).compile();
    const [billing, locks] = [module.get(Billing), module.get(LockService)];
    expect(locks.isLeader('billing')).toBe(true);
    await expect(billing.report()).resolves.toBe('billing');
    const controller = new AbortController();
    const leading = billing.lead(controller.signal);
    await until(() => billing.charged === 1);
    controller.abort();
    await leading;
    stub.busy('billing');
    expect(locks.isLeader('billing')).toBe(false);
    await expect(billing.report()).resolves.toBeUndefined();
  });

  it('the stub waits while the key is busy', async () => {
    const stub = provideLockServiceStub();
    const module = await Test.createTestingModule({ providers: [stub] }).compile();
    stub.busy('prices');
    const controller = new AbortController();
    const led: string[] = [];
    const campaign = module
      .get(LockService)
      .runAsLeader('prices', async ({ key }) => led.push(key), { signal: controller.signal });
    controller.abort();
    await campaign;
    expect(led).toEqual([]);
  });

  it('the stub leads once the key is free, and ends its terms and its waits when the module closes', async () => {
    const stub = provideLockServiceStub();
    const module = await Test.createTestingModule({ providers: [stub] }).compile();
    await module.init();
    stub.busy('prices');
    stub.busy('sums');
    const ends: unknown[] = [];
    const terms: LeaderTerm[] = [];
    const lead = async (key: string) => {
      const task = async (term: LeaderTerm) => {
        terms.push(term);
        await aborted(term.signal);
      };
      await module.get(LockService).runAsLeader(key, task);
      ends.push(key);
    };
    const campaigns = [lead('prices'), lead('sums')];
    stub.free('prices');
    await until(() => terms.length === 1);
    expect([terms[0]?.key, ends]).toEqual(['prices', []]);
    await module.close();
    await Promise.all(campaigns);
    expect([terms.length, ends.sort()]).toEqual([1, ['prices', 'sums']]);
  });

  it('a term created by a unit test is enough to run the method', async () => {
    const billing = new Billing(undefined as never);
    const controller = new AbortController();
    const run = billing.run({ signal: controller.signal });
    controller.abort();
    await run;
    expect(billing.charged).toBe(1);
  });

  it('the testing module holds real elections, and can revoke leadership', async () => {
    const module = await Test.createTestingModule({
      imports: [DistributedLockTestingModule.forRoot()],
      providers: [Billing],
    }).compile();
    await module.init();
    const [locks, service] = [module.get(TestLocks), module.get(LockService)];
    await until(() => module.get(Billing).charged === 1);
    await locks.lose('billing');
    expect(service.isLeader('billing')).toBe(false);
    await locks.clock.advance(1_000);
    expect([service.isLeader('billing'), module.get(Billing).charged]).toEqual([true, 2]);
    await module.close();
  });
});

it('an application that leads closes without listening, and leaves no campaign', async () => {
  @Injectable()
  class Silent {
    @RunAsLeader('a')
    async run({ signal }: LeaderTerm) {
      await aborted(signal);
    }
  }
  const module = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })],
    providers: [Silent],
  }).compile();
  await module.init();
  const service = module.get(LockService);
  await until(() => service.isLeader('a'));
  await module.close();
  expect(service.leadership.campaigns).toEqual([]);
  expect(module.get(LockManager).admin.held()).toEqual([]);
});
