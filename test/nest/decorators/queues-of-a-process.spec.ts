import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { AsyncResource } from 'node:async_hooks';
import { Injectable, Module } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { DistributedLock, DistributedLockModule, LockBusyError, MemoryLockProvider } from '../../../lib/index.js';
import { deferred } from '../../core/manager-rig.js';
import { start } from '../apps.js';
import { CountingProvider } from '../../backend-context.js';

type Task<T = void> = () => Promise<T>;
/** Runs tasks one after the other. */
type Queue = <T>(task: Task<T>) => Promise<T>;

/** Returns a library's default export. The compiler can't resolve the name: p-queue's types need browser types. */
async function defaultOf<T>(library: string): Promise<T> {
  const { default: exported } = (await import(library)) as { default: T | { default: T } };
  return typeof exported === 'object' && exported !== null && 'default' in exported ? exported.default : exported;
}

const pLimit = (library: string) => async (): Promise<Queue> =>
  (await defaultOf<(concurrency: number) => Queue>(library))(1);

const pQueue = (library: string) => async (): Promise<Queue> => {
  const PQueue = await defaultOf<new (options: { concurrency: number }) => { add: Queue }>(library);
  const queue = new PQueue({ concurrency: 1 });
  return (task) => queue.add(task);
};

async function bottleneck(): Promise<Queue> {
  const { default: Bottleneck } = await import('bottleneck');
  const queue = new Bottleneck({ maxConcurrent: 1 });
  return (task) => queue.schedule(task);
}

async function fastq(): Promise<Queue> {
  const { default: fast } = await import('fastq');
  const queue = fast.promise((task: Task<unknown>) => task(), 1);
  return <T>(task: Task<T>) => queue.push(task) as Promise<T>;
}

async function asyncQueue(): Promise<Queue> {
  const { default: async } = await import('async');
  const queue = async.queue((task: Task<unknown>, done: (error?: Error | null, value?: unknown) => void) => {
    void task().then((value) => {
      done(null, value);
    });
  }, 1);
  return <T>(task: Task<T>) => queue.pushAsync<T>(task);
}

async function asyncMutex(): Promise<Queue> {
  const { Mutex } = await import('async-mutex');
  const mutex = new Mutex();
  return (task) => mutex.runExclusive(task);
}

/** The documented libraries, and whether a task runs in the async context of the caller that queued it. */
const QUEUES: readonly [name: string, keepsContext: boolean, make: () => Promise<Queue>][] = [
  ['p-limit 3', false, pLimit('p-limit3')],
  ['p-limit 4', false, pLimit('p-limit4')],
  ['p-limit 6', true, pLimit('p-limit6')],
  ['p-limit 7', true, pLimit('p-limit')],
  ['p-queue 6', false, pQueue('p-queue6')],
  ['p-queue 9', false, pQueue('p-queue9')],
  ['p-queue 10', true, pQueue('p-queue')],
  ['bottleneck', false, bottleneck],
  ['fastq', false, fastq],
  ['`async.queue`', false, asyncQueue],
  ['async-mutex', true, asyncMutex],
];

/**
 * One request holds the key and calls a partner through the queue. Another request queues a call of a method with the
 * same key.
 *
 * @returns The highest number of callers that were inside at the same time.
 */
async function mostInside(queue: Queue, reentrant: true | 'explicit' | undefined): Promise<number> {
  let inside = 0;
  let most = 0;
  const enter = async (work: Task): Promise<void> => {
    inside += 1;
    most = Math.max(most, inside);
    await work();
    inside -= 1;
  };
  const partner = deferred();
  const books = deferred();
  const started = deferred();
  let queueStranger = (): void => undefined;

  @Injectable()
  class Accounts {
    @DistributedLock('account:#{id}', { reentrant })
    async sync(id: number): Promise<void> {
      await enter(async () => {
        const answer = queue(() => partner.promise);
        queueStranger();
        await answer;
        // Keeps the lock while the queue starts its next task.
        await books.promise;
      });
      expect(id).toBe(7);
    }

    @DistributedLock('account:#{id}', { reentrant })
    async close(id: number): Promise<void> {
      await enter(() => Promise.resolve());
      expect(id).toBe(7);
    }
  }
  const accounts = (await start({ providers: [Accounts] })).get(Accounts);
  let stranger: Promise<void> | undefined;
  // Runs in the test's context, like another request with its own context.
  queueStranger = AsyncResource.bind(() => {
    stranger = queue(() => {
      started.resolve();
      return accounts.close(7);
    });
  });
  const holder = accounts.sync(7);
  await turns();
  partner.resolve();
  await started.promise;
  await turns();
  books.resolve();
  await Promise.all([holder, stranger]);
  return most;
}

/** Lets pass what needs only turns of the event loop, like a lock in memory. */
const turns = () => new Promise((resolve) => setTimeout(resolve, 20));

describe.each(QUEUES)('a locked call in a task of %s', (_, keepsContext, make) => {
  it("waits for the holder, even if it runs in the holder's context", async () => {
    expect(await mostInside(await make(), undefined)).toBe(1);
  });

  it(`is treated as ${keepsContext ? 'an unrelated' : 'a nested'} call if the context decides`, async () => {
    expect(await mostInside(await make(), true)).toBe(keepsContext ? 1 : 2);
  });

  it('is treated as an unrelated call if the task is bound with AsyncResource', async () => {
    const queue = await make();
    expect(await mostInside((task) => queue(AsyncResource.bind(task)), true)).toBe(1);
  });
});

/** Returns the libraries in each of the two documented lists. */
function documented(): string[][] {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/several-keys.md'), 'utf8');
  const lists = (page.split('<!-- tested: queues -->')[1] ?? '').trim().split('\n').slice(0, 2);
  return lists.map((list) => list.replace(/^.*:\*\* |\.$/g, '').split(', '));
}

it('the documentation names the tested versions', () => {
  const tested = (keepsContext: boolean) =>
    QUEUES.filter(([name, keeps]) => keeps === keepsContext && !/^p-/.test(name)).map(([name]) => name);
  expect(documented()).toEqual([
    ['p-limit from 5', 'p-queue from 10', ...tested(true)],
    ['p-limit below 5', 'p-queue below 10', ...tested(false)],
  ]);
});

@Injectable()
class Reports {
  running = 0;
  most = 0;
  readonly ends: (() => void)[] = [];

  @DistributedLock('report:#{tenant}', { limit: 2, wait: '30s' })
  async heavy(tenant: string): Promise<string> {
    this.running += 1;
    this.most = Math.max(this.most, this.running);
    await new Promise<void>((resolve) => this.ends.push(resolve));
    this.running -= 1;
    return tenant;
  }

  @DistributedLock('report:#{tenant}', { limit: 2, weight: 2, wait: 0 })
  async alone(tenant: string): Promise<string> {
    return tenant;
  }
}

it('a decorated method runs concurrently up to its limit', async () => {
  const imports = [DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })];
  const app = await Test.createTestingModule({ imports, providers: [Reports] }).compile();
  await app.init();
  const reports = app.get(Reports);
  const calls = Array.from({ length: 5 }, () => reports.heavy('acme'));
  for (let ended = 0; ended < 5; ended += 1) {
    while (reports.ends.length === 0) await new Promise((resolve) => setImmediate(resolve));
    await expect(reports.alone('acme')).rejects.toThrow(LockBusyError);
    await expect(reports.alone('other')).resolves.toBe('other');
    reports.ends.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await Promise.all(calls);
  expect(reports.most).toBe(2);
  await expect(reports.alone('acme')).resolves.toBe('acme');
  await app.close();
});

it('a provider without limits fails the boot of an application that uses them', async () => {
  class Unlimited extends CountingProvider {
    protected override readonly capabilities = { limits: false };
  }
  @Module({ imports: [DistributedLockModule.forRoot({ provider: new Unlimited() })], providers: [Reports] })
  class AppModule {}
  const boot = Test.createTestingModule({ imports: [AppModule] })
    .compile()
    .then((app) => app.init());
  await expect(boot).rejects.toThrow(/Reports\.heavy: Lock provider "default" cannot enforce "limit": remove it/);
});
