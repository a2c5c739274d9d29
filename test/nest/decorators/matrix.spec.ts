// What applications of Nest do with locks, where one process without a server is enough; the rest is in
// handlers.spec.ts, with-other-decorators.spec.ts and the specs that are named after a transport.
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

/** The key that the caller is under; throws outside of a lock. */
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

describe('a decorated method is locked', () => {
  it('on a singleton', async () => {
    await expect((await first(Jobs)).run('1')).resolves.toBe('job:1');
  });

  it.each([
    ['request', Scope.REQUEST],
    ['transient', Scope.TRANSIENT],
  ])('on a %s-scoped provider', async (_, scope) => {
    @Injectable({ scope })
    class Scoped extends Jobs {}
    const app = await start({ providers: [Scoped] });
    const [one, other] = [await app.resolve(Scoped), await app.resolve(Scoped)];
    expect(one).not.toBe(other);
    await expect(one.run('1')).resolves.toBe('job:1');
    await expect(other.run('1')).resolves.toBe('job:1');
  });

  it('when it is inherited, beside injected properties of the subclass', async () => {
    @Injectable()
    class Special extends Jobs {
      @Inject(ModuleRef) readonly ref!: ModuleRef;
    }
    const special = await first(Special);
    expect(special.ref).toBeInstanceOf(ModuleRef);
    await expect(special.run('1')).resolves.toBe('job:1');
  });

  it('when it is the template method of an abstract class', async () => {
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

  it('when the class calls it itself, also where it is private', async () => {
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

  it('when its name is a symbol', async () => {
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

  it('on instances of ModuleRef.create() and resolve()', async () => {
    const app = await start({ providers: [Jobs] });
    const created = await app.get(ModuleRef).create(Jobs);
    expect(created).not.toBe(app.get(Jobs));
    await expect(created.run('1')).resolves.toBe('job:1');
  });

  it('in a feature module, and in one that is global itself', async () => {
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

  it('on what a test puts in the place of a provider', async () => {
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

  it('on a guard, an interceptor and any other enhancer that Nest makes', async () => {
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

  it.each(['useFactory', 'useValue'])('on a %s provider', async (way) => {
    const provider =
      way === 'useValue'
        ? { provide: 'JOBS', useValue: new Jobs() }
        : { provide: 'JOBS', useFactory: () => new Jobs() };
    // With a second application in the process there is no guessing whose locks are meant.
    await start({});
    const app = await start({ providers: [provider] });
    await expect(app.get<Jobs>('JOBS').run('1')).resolves.toBe('job:1');
  });

  it('on a value that outlives one application and serves the next', async () => {
    const jobs = new Jobs();
    const providers = [{ provide: Jobs, useValue: jobs }];
    const before = await start({ providers });
    await expect(jobs.run('1')).resolves.toBe('job:1');
    await close(before);
    await start({ providers });
    await expect(jobs.run('2')).resolves.toBe('job:2');
  });

  it('on frozen instances, Proxies and objects made from an instance', async () => {
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

  it('on an instance made by hand and without a this, while one application lives', async () => {
    const app = await start({ providers: [Jobs] });
    await expect(new Jobs().run('1')).resolves.toBe('job:1');
    const { run } = app.get(Jobs);
    await expect(run('2')).resolves.toBe('job:2');
  });
});

describe('overriding', () => {
  class Base {
    @DistributedLock('base')
    async run(): Promise<string[]> {
      return [keyHere()];
    }
  }

  it('without the decorator leaves the override unlocked, and super locked', async () => {
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

  it('with the same key re-enters it', async () => {
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

describe('at the beginning and at the end of an application', () => {
  it('locks calls in the constructor of another provider, and in its own', async () => {
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

  it('locks lifecycle hooks, in modules nearer and farther than the lock module', async () => {
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
  it('keep their locks apart', async () => {
    const [one, other] = [await start({ providers: [Jobs] }), await start({ providers: [Jobs] })];
    await using held = await one.get(LockService).acquire('job:1');
    expect(held.isHeld()).toBe(true);
    await expect(other.get(Jobs).run('1')).resolves.toBe('job:1');
    await expect(one.get(LockService).tryAcquire('job:1')).resolves.toBeNull();
  });

  it('are not guessed between', async () => {
    await start({});
    await start({});
    await expect(new Jobs().run('1')).rejects.toThrow(
      /^Jobs\.run was called before Nest injected its lock service, or outside Nest \(live applications: 2\)/,
    );
  });

  it('a guess that turns out to be wrong fails the boot', async () => {
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
  it('a call says what is missing', async () => {
    await expect(new Jobs().run('1')).rejects.toThrow(/outside Nest \(live applications: 0\).*forRoot\(\)/);
  });

  it('a missing module fails the boot and names the remedy', async () => {
    await expect(start({ providers: [Jobs] }, null)).rejects.toThrow(
      /Jobs.*import DistributedLockModule\.forRoot\(\) in the root module/s,
    );
  });

  it('a call after the end says that the application is stopping', async () => {
    const app = await start({ providers: [Jobs] });
    const jobs = app.get(Jobs);
    await close(app);
    await expect(jobs.run('1')).rejects.toThrow(/shutting down/);
  });
});

it('leaves no trace on the instance', async () => {
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
