// How Nest applications use locks, as far as one process without a server can test it. The rest is in handlers.spec.ts,
// with-other-decorators.spec.ts and the specs named after a transport.
import {
  Global,
  Inject,
  Injectable,
  Module,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
  type OnModuleInit,
  Scope,
  type Type,
} from '@nestjs/common';
import { ModuleRef } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import {
  currentLock,
  DistributedLock,
  DistributedLockModule,
  LockConfigError,
  LockService,
} from '../../../lib/index.js';
import { close, start } from '../apps.js';

/** Returns the key that the caller holds. Throws outside a lock. */
function keyHere(): string {
  const lock = currentLock();
  lock.assertHeld();
  return lock.key;
}

@Injectable()
class Jobs {
  @DistributedLock('job:#{id}')
  async run(id: string): Promise<string> {
    await Promise.resolve(id);
    return keyHere();
  }
}

async function first<T extends object>(type: Type<T>, ...providers: Type[]): Promise<T> {
  const app = await start({ providers: [type, ...providers] });
  return app.get(type);
}

describe('@DistributedLock', () => {
  it('locks a method of a singleton', async () => {
    await expect((await first(Jobs)).run('1')).resolves.toBe('job:1');
  });

  it.each([
    ['request', Scope.REQUEST],
    ['transient', Scope.TRANSIENT],
  ])('locks a method of a %s-scoped provider', async (_, scope) => {
    @Injectable({ scope })
    class Scoped extends Jobs {}
    const app = await start({ providers: [Scoped] });
    const [one, other] = [await app.resolve(Scoped), await app.resolve(Scoped)];
    expect(one).not.toBe(other);
    await expect(one.run('1')).resolves.toBe('job:1');
    await expect(other.run('1')).resolves.toBe('job:1');
  });

  it('locks a method inherited by a subclass with injected properties', async () => {
    @Injectable()
    class Special extends Jobs {
      @Inject(ModuleRef) readonly ref!: ModuleRef;
    }
    const special = await first(Special);
    expect(special.ref).toBeInstanceOf(ModuleRef);
    await expect(special.run('1')).resolves.toBe('job:1');
  });

  it('locks a template method of an abstract class', async () => {
    abstract class Import {
      @DistributedLock('import')
      async run(): Promise<string> {
        return this.load();
      }
      protected abstract load(): Promise<string>;
    }
    @Injectable()
    class CsvImport extends Import {
      protected override async load() {
        return `csv under ${keyHere()}`;
      }
    }
    await expect((await first(CsvImport)).run()).resolves.toBe('csv under import');
  });

  it('locks a method that its own class calls, even if it is private', async () => {
    @Injectable()
    class Caller {
      run() {
        return this.inner(7);
      }
      @DistributedLock('inner:#{n}')
      private async inner(n: number) {
        return `${keyHere()} ${n}`;
      }
    }
    await expect((await first(Caller)).run()).resolves.toBe('inner:7 7');
  });

  it('locks a method whose name is a symbol', async () => {
    const name = Symbol('run');
    @Injectable()
    class Symbolic {
      @DistributedLock('symbolic:#{p0}')
      async [name](id: number) {
        return `${keyHere()} ${id}`;
      }
    }
    const symbolic = await first(Symbolic);
    await expect(symbolic[name](1)).resolves.toBe('symbolic:1 1');
    expect(symbolic[name].name).toBe('[run]');
  });

  it('locks methods of an instance created by ModuleRef.create()', async () => {
    const app = await start({ providers: [Jobs] });
    const created = await app.get(ModuleRef).create(Jobs);
    expect(created).not.toBe(app.get(Jobs));
    await expect(created.run('1')).resolves.toBe('job:1');
  });

  it('locks methods in a feature module, and in a global module', async () => {
    @Module({ providers: [Jobs], exports: [Jobs] })
    class FeatureModule {}
    @Injectable()
    class OtherJobs extends Jobs {}
    @Global()
    @Module({ providers: [OtherJobs] })
    class GlobalModule {}
    const app = await start({ imports: [FeatureModule, GlobalModule] });
    await expect(app.get(Jobs).run('1')).resolves.toBe('job:1');
    await expect(app.get(OtherJobs).run('2')).resolves.toBe('job:2');
  });

  it('locks methods of an instance that overrides a provider in a test', async () => {
    class Double extends Jobs {}
    for (const change of ['class', 'value'] as const) {
      const builder = Test.createTestingModule({ imports: [DistributedLockModule.forRoot()], providers: [Jobs] });
      const override = builder.overrideProvider(Jobs);
      const testing = await (
        change === 'class' ? override.useClass(Double) : override.useValue(new Double())
      ).compile();
      await testing.init();
      expect(testing.get(Jobs)).toBeInstanceOf(Double);
      await expect(testing.get(Jobs).run('1')).resolves.toBe('job:1');
      await close(testing);
    }
  });

  it('locks a method of a guard, as of any other enhancer that Nest creates', async () => {
    @Injectable()
    class Guard {
      @DistributedLock('guard')
      async canActivate() {
        return keyHere() === 'guard';
      }
    }
    const app = await start({ providers: [Guard] });
    await expect(app.get(Guard).canActivate()).resolves.toBe(true);
  });

  it.each(['useFactory', 'useValue'])('locks a method of a %s provider', async (way) => {
    const provider =
      way === 'useValue'
        ? { provide: 'JOBS', useValue: new Jobs() }
        : { provide: 'JOBS', useFactory: () => new Jobs() };
    // A second application in the process makes the instance ambiguous without injection.
    await start({});
    const app = await start({ providers: [provider] });
    await expect(app.get<Jobs>('JOBS').run('1')).resolves.toBe('job:1');
  });

  it('locks a method of a value that outlives one application and is used in the next', async () => {
    const jobs = new Jobs();
    const providers = [{ provide: Jobs, useValue: jobs }];
    const before = await start({ providers });
    await expect(jobs.run('1')).resolves.toBe('job:1');
    await close(before);
    await start({ providers });
    await expect(jobs.run('2')).resolves.toBe('job:2');
  });

  it('locks methods of frozen instances, Proxies and objects that inherit from an instance', async () => {
    @Injectable()
    class Frozen extends Jobs {
      constructor() {
        super();
        Object.freeze(this);
      }
    }
    await start({});
    const app = await start({ providers: [Jobs, Frozen] });
    const jobs = app.get(Jobs);
    await expect(app.get(Frozen).run('1')).resolves.toBe('job:1');
    await expect(new Proxy(jobs, {}).run('2')).resolves.toBe('job:2');
    await expect((Object.create(jobs) as Jobs).run('3')).resolves.toBe('job:3');
  });

  it('locks a call on an instance created with new, or without this, while only one application is live', async () => {
    const app = await start({ providers: [Jobs] });
    await expect(new Jobs().run('1')).resolves.toBe('job:1');
    const { run } = app.get(Jobs);
    await expect(run('2')).resolves.toBe('job:2');
  });
});

describe('overriding a locked method', () => {
  class Base {
    @DistributedLock('base')
    async run(): Promise<string[]> {
      return [keyHere()];
    }
  }

  it('without the decorator leaves the override unlocked, but super locked', async () => {
    @Injectable()
    class Override extends Base {
      override async run() {
        expect(keyHere).toThrow(LockConfigError);
        return super.run();
      }
    }
    await expect((await first(Override)).run()).resolves.toEqual(['base']);
  });

  it('with the decorator nests the lock of super', async () => {
    @Injectable()
    class Override extends Base {
      @DistributedLock('alias')
      override async run() {
        return [keyHere(), ...(await super.run())];
      }
    }
    await expect((await first(Override)).run()).resolves.toEqual(['alias', 'base']);
  });

  it('with the same key re-enters the lock', async () => {
    @Injectable()
    class Override extends Base {
      @DistributedLock('base', { wait: 0 })
      override async run() {
        return [keyHere(), ...(await currentLock().run(() => super.run()))];
      }
    }
    await expect((await first(Override)).run()).resolves.toEqual(['base', 'base']);
  });
});

describe('during the start and the end of an application, @DistributedLock', () => {
  it("locks calls in another provider's constructor, and in the provider's own", async () => {
    const calls: Promise<string>[] = [];
    @Injectable()
    class Caller {
      constructor(jobs: Jobs) {
        calls.push(jobs.run('other'));
      }
    }
    @Injectable()
    class SelfCaller extends Jobs {
      constructor() {
        super();
        calls.push(this.run('own'));
      }
    }
    await start({ providers: [Jobs, Caller, SelfCaller] });
    await expect(Promise.all(calls)).resolves.toEqual(expect.arrayContaining(['job:other', 'job:own']));
  });

  it('locks lifecycle hooks, in modules that Nest initializes before and after the lock module', async () => {
    const seen: string[] = [];
    @Injectable()
    class Hooks implements OnModuleInit, OnApplicationBootstrap, OnModuleDestroy, OnApplicationShutdown {
      @DistributedLock('#{method}')
      async onModuleInit() {
        seen.push(keyHere());
      }
      @DistributedLock('#{method}')
      async onApplicationBootstrap() {
        seen.push(keyHere());
      }
      @DistributedLock('#{method}')
      async onModuleDestroy() {
        seen.push(keyHere());
      }
      @DistributedLock('#{method}')
      async onApplicationShutdown() {
        seen.push(keyHere());
      }
    }
    @Global()
    @Module({ providers: [Hooks] })
    class GlobalModule {}
    const app = await start({ imports: [GlobalModule], providers: [Hooks] });
    await close(app);
    const each = ['onModuleInit', 'onApplicationBootstrap', 'onModuleDestroy', 'onApplicationShutdown'];
    expect(seen).toEqual(each.flatMap((hook) => [hook, hook]));
  });
});

describe('several applications in one process', () => {
  it('keep their locks separate', async () => {
    const [one, other] = [await start({ providers: [Jobs] }), await start({ providers: [Jobs] })];
    await using held = await one.get(LockService).acquire('job:1');
    expect(held.isHeld()).toBe(true);
    await expect(other.get(Jobs).run('1')).resolves.toBe('job:1');
    await expect(one.get(LockService).tryAcquire('job:1')).resolves.toBeNull();
  });

  it('refuse calls on an instance created outside Nest, because it could belong to any of them', async () => {
    await start({});
    await start({});
    await expect(new Jobs().run('1')).rejects.toThrow(
      /^Jobs\.run was called before Nest injected its lock service, or outside Nest \(live applications: 2\)/,
    );
  });

  it('fail the boot if an earlier call locked in the wrong one', async () => {
    await start({});
    const jobs = {
      provide: 'jobs',
      async useFactory() {
        const made = new Jobs();
        await made.run('1');
        return made;
      },
    };
    await expect(start({ providers: [jobs] })).rejects.toThrow(
      /Jobs was called before .* locked in another application/,
    );
  });
});

describe('without an application', () => {
  it('a call reports what is missing', async () => {
    await expect(new Jobs().run('1')).rejects.toThrow(/outside Nest \(live applications: 0\).*forRoot\(\)/);
  });

  it('a missing module fails the boot with the remedy', async () => {
    await expect(start({ providers: [Jobs] }, null)).rejects.toThrow(
      /Jobs.*import DistributedLockModule\.forRoot\(\) in the root module/s,
    );
  });

  it('a call after close() reports that the application is shutting down', async () => {
    const app = await start({ providers: [Jobs] });
    const jobs = app.get(Jobs);
    await close(app);
    await expect(jobs.run('1')).rejects.toThrow(/shutting down/);
  });
});

it('@DistributedLock leaves no trace on the instance', async () => {
  @Injectable()
  class Plain {
    readonly color = 'red';
    @DistributedLock('plain')
    async run() {}
  }
  const plain = await first(Plain);
  expect(Object.keys(plain)).toEqual(['color']);
  expect(JSON.stringify(plain)).toBe('{"color":"red"}');
  expect(plain).toEqual(new Plain());
  expect(Object.assign({}, plain)).toEqual({ color: 'red' });
  expect(Reflect.ownKeys(Object.assign({}, plain))).toEqual(['color']);
});
