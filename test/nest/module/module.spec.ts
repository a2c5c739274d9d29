import { jest } from '@jest/globals';
import { Inject, Injectable, Logger, Module, type OnApplicationShutdown, Optional } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { EventEmitter2, EventEmitterModule, OnEvent } from '@nestjs/event-emitter';
import {
  currentLock,
  DistributedLock,
  DistributedLockModule,
  type DistributedLockModuleOptions,
  LockAdmin,
  LockConfigError,
  LockService,
  LockUnavailableError,
  MemoryLockProvider,
  type LockEventMap,
  provideLockEventRelay,
} from '../../../lib/index.js';
import { CountingProvider } from '../../backend-context.js';
import { close, Gate, start, until } from '../apps.js';

@Injectable()
class Orders {
  readonly second: LockService;
  constructor(readonly locks: LockService) {
    this.second = locks.via('second');
  }
  @DistributedLock('order', { provider: 'second' })
  async pay() {
    return currentLock().provider;
  }
}

const two = (): DistributedLockModuleOptions => ({
  providers: { first: new MemoryLockProvider(), second: new MemoryLockProvider() },
  default: 'first',
});

@Injectable()
class OptionsFactory {
  constructor(@Optional() @Inject('BACKENDS') private readonly backends?: DistributedLockModuleOptions) {}
  createDistributedLockOptions() {
    return Promise.resolve(this.backends ?? two());
  }
}

@Module({
  providers: [{ provide: 'BACKENDS', useFactory: two }, OptionsFactory],
  exports: ['BACKENDS', OptionsFactory],
})
class BackendsModule {}

describe('the module', () => {
  it.each([
    ['forRoot', () => DistributedLockModule.forRoot(two())],
    [
      'useFactory',
      () =>
        DistributedLockModule.forRootAsync({
          imports: [BackendsModule],
          inject: ['BACKENDS'],
          useFactory: (backends: DistributedLockModuleOptions) => backends,
        }),
    ],
    ['useClass', () => DistributedLockModule.forRootAsync({ useClass: OptionsFactory })],
    [
      'useExisting',
      () =>
        DistributedLockModule.forRootAsync({
          imports: [BackendsModule],
          useExisting: OptionsFactory,
        }),
    ],
  ])('takes its options from %s, and offers its providers by name', async (_, module) => {
    const app = await start({ imports: [module()], providers: [Orders] }, null);
    const orders = app.get(Orders);
    await expect(orders.pay()).resolves.toBe('second');
    expect(orders.second).toBe(orders.locks.via('second'));
    await expect(orders.second.withLock('a', ({ provider }) => provider)).resolves.toBe('second');
    await expect(orders.locks.withLock('a', ({ provider }) => provider)).resolves.toBe('first');
  });

  it('locks in memory without options, with a warning that passing the provider silences', async () => {
    const warn = jest.spyOn(Logger.prototype, 'warn').mockImplementation(() => undefined);
    try {
      await start({ imports: [DistributedLockModule.forRoot()] }, null);
      expect(warn.mock.calls).toEqual([
        [expect.stringMatching(/^Locks are kept in memory and exclude only callers in this process/)],
      ]);
      await start({}, { provider: new MemoryLockProvider() });
      expect(warn).toHaveBeenCalledTimes(1);
    } finally {
      warn.mockRestore();
    }
  });
});

describe('LockService', () => {
  it('acquires locks, runs work under them, returns the current lock and detaches from it', async () => {
    const locks = (await start({})).get(LockService);
    const lock = await locks.acquire('a');
    await expect(locks.tryAcquire('a')).resolves.toBeNull();
    await expect(locks.acquire('a', { wait: 0 })).rejects.toThrow(/"a"/);
    await expect(lock.release()).resolves.toBe('released');
    await locks.withLock(['b', 'a'], async (both) => {
      expect(locks.current()).toBe(both);
      expect(locks.current('b')).toBe(both);
      expect(locks.current('c')).toBeUndefined();
      expect(currentLock('a')).toBe(both);
      expect(() => currentLock('c')).toThrow(/"c".*outside/);
      expect(locks.detached(() => locks.current())).toBeUndefined();
    });
    expect(locks.current()).toBeUndefined();
  });

  it('has no current lock in work that outlives its method', async () => {
    const gate = new Gate();
    @Injectable()
    class Jobs {
      later: Promise<unknown> = Promise.resolve();
      @DistributedLock('job')
      async run() {
        this.later = gate.opened.then(() => currentLock());
        return currentLock().key;
      }
    }
    const jobs = (await start({ providers: [Jobs] })).get(Jobs);
    expect(await jobs.run()).toBe('job');
    gate.open();
    await expect(jobs.later).rejects.toThrow(/after its release/);
  });

  it('via() accepts only configured providers, and a call can override it', async () => {
    const locks = (await start({}, two())).get(LockService);
    expect(() => locks.via('third')).toThrow(/"third": this application has "first", "second"/);
    const second = locks.via('second');
    expect(second.via('first').via('second')).toBe(second);
    await using lock = (await second.tryAcquire('a', { provider: 'first' }))!;
    expect(lock.provider).toBe('first');
  });
});

describe('LockAdmin', () => {
  it('lists held and waiting locks, and force-releases them', async () => {
    const app = await start({});
    const [locks, admin] = [app.get(LockService), app.get(LockAdmin)];
    await expect(admin.inspect('a')).resolves.toBeNull();
    const lock = await locks.acquire('a');
    const waiting = locks.acquire('a');
    expect(admin.held()).toEqual([expect.objectContaining({ key: 'a', provider: 'memory' })]);
    await until(() => admin.waiting().length === 1);
    await expect(admin.inspect('a')).resolves.toMatchObject({ key: 'a' });
    await expect(admin.forceRelease('a')).resolves.toBe(true);
    expect(lock.isHeld()).toBe(false);
    await (await waiting).release();
  });
});

describe('shutdown', () => {
  it('lets holders finish with the locks they still need, and refuses new callers', async () => {
    const gate = new Gate();
    @Injectable()
    class Jobs {
      @DistributedLock('outer')
      async run() {
        await gate.opened;
        return this.inner();
      }
      @DistributedLock('outer:inner')
      async inner() {
        return currentLock().isHeld();
      }
    }
    const app = await start({ providers: [Jobs] }, { shutdownGrace: '5s' });
    const [jobs, locks] = [app.get(Jobs), app.get(LockService)];
    const running = jobs.run();
    const closing = close(app);
    const refused = async () => locks.tryAcquire('free').then((lock) => lock?.release());
    await expect(eventually(refused)).resolves.toBeInstanceOf(LockUnavailableError);
    gate.open();
    await expect(running).resolves.toBe(true);
    await closing;
  });

  it('revokes locks that outlast the grace period, and stops the provider', async () => {
    const provider = new CountingProvider();
    const app = await start({}, { provider, shutdownGrace: 5 });
    const lock = await app.get(LockService).acquire('a');
    await close(app);
    expect(lock.signal.reason).toMatchObject({ name: 'LockLostError', reason: 'shutdown' });
    expect(provider.stops).toBe(1);
  });

  it('lets locks work until the last shutdown hook', async () => {
    const seen: string[] = [];
    @Injectable()
    class Last implements OnApplicationShutdown {
      constructor(private readonly locks: LockService) {}
      async onApplicationShutdown() {
        seen.push(await this.locks.withLock('last', ({ key }) => key));
      }
    }
    await close(await start({ providers: [Last] }));
    expect(seen).toEqual(['last']);
  });

  it('works for an application that was never initialized', async () => {
    const provider = new CountingProvider();
    const testing = await Test.createTestingModule({
      imports: [DistributedLockModule.forRoot({ provider })],
    }).compile();
    await testing.close();
    expect(provider.stops).toBe(1);
  });
});

async function eventually(attempt: () => Promise<unknown>): Promise<unknown> {
  for (;;) {
    try {
      await attempt();
    } catch (error) {
      return error;
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
}

it.each([LockService, LockAdmin])('%p in the providers of a module fails the boot', async (provided) => {
  const imports = [DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })];
  const compiled = Test.createTestingModule({ imports, providers: [provided] }).compile();
  const error: unknown = await compiled.catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(LockConfigError);
  expect((error as Error).message).toBe(
    `${provided.name} is listed in the "providers" of a module. Remove it there: DistributedLockModule provides it to every module in the application.`,
  );
});

const LIB = fileURLToPath(new URL('../../../lib/', import.meta.url));
const FROM = /(?:\bfrom|\bimport)\s*\(?\s*'([^']+)'/g;

/** Returns the packages that a source file imports, directly or through other files, even if only for their types. */
function packagesOf(file: string, seen = new Set<string>()): string[] {
  if (seen.has(file)) return [];
  seen.add(file);
  const names = [...readFileSync(file, 'utf8').matchAll(FROM)].map(([, name = '']) => name);
  return names.flatMap((name) =>
    name.startsWith('.') ? packagesOf(join(dirname(file), name.replace(/\.js$/, '.ts')), seen) : [name],
  );
}

const isOwn = (name: string) => /^(node:|@nestjs\/(common|core)(\/|$)|rxjs$|reflect-metadata$|ms$|acorn$)/.test(name);

it('the root entry point imports no optional package', () => {
  const packages = packagesOf(join(LIB, 'index.ts'));
  expect(packages).toContain('@nestjs/core');
  expect([...new Set(packages)].filter((name) => !isOwn(name))).toEqual([]);
});

it('the check detects an optional package', () => {
  expect(packagesOf(join(LIB, 'integrations/swagger/index.ts'))).toContain('@nestjs/swagger');
});

it('@OnEvent receives the events of locks if the relay is provided', async () => {
  @Injectable()
  class Listener {
    readonly heard: unknown[] = [];

    @OnEvent('lock.acquired')
    onAcquired({ key }: LockEventMap['acquired']) {
      this.heard.push(['acquired', key]);
    }
    @OnEvent('lock.*')
    onAny({ key }: { key: string }) {
      this.heard.push(key);
      throw new Error('of a listener');
    }
  }
  const app = await start({
    imports: [EventEmitterModule.forRoot({ wildcard: true })],
    providers: [provideLockEventRelay(EventEmitter2), Listener],
  });
  expect(await app.get(LockService).withLock('stock:42', () => 'done')).toBe('done');
  const { heard } = app.get(Listener);
  expect(heard).toHaveLength(3);
  expect(heard).toEqual(expect.arrayContaining([['acquired', 'stock:42'], 'stock:42', 'stock:42']));
});

it('the relay accepts any object with emit(), and several of them', async () => {
  const seen: string[] = [];
  const target = (name: string) => ({ provide: name, useValue: { emit: (event: string) => seen.push(name + event) } });
  const app = await start({
    providers: [target('one'), target('two'), provideLockEventRelay('one'), provideLockEventRelay('two')],
  });
  await app.get(LockService).withLock('a', () => undefined);
  expect(seen.sort()).toEqual(['onelock.acquired', 'onelock.released', 'twolock.acquired', 'twolock.released']);
});
