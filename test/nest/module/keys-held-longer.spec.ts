import { once } from 'node:events';
import { Injectable, Module, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Cron, Interval, ScheduleModule } from '@nestjs/schedule';
import {
  DistributedLock,
  DistributedLockModule,
  type LeaderTerm,
  MemoryLockProvider,
  OnlyLeader,
  RunAsLeader,
  RunOnce,
} from '../../../lib/index.js';

/** Boots these classes and returns the mistakes that fail the boot, or else the warnings of the lock module. */
async function said(imports: object[], ...providers: Type[]): Promise<string[]> {
  const lines: string[] = [];
  const none = () => undefined;
  const warn = (message: unknown, context: unknown) => context === 'DistributedLock' && lines.push(String(message));
  @Module({
    imports: [
      ...(imports as Type[]),
      DistributedLockModule.forRoot({
        providers: { a: new MemoryLockProvider(), b: new MemoryLockProvider() },
        default: 'a',
      }),
    ],
    providers,
  })
  class AppModule {}
  try {
    const logger = { log: none, error: none, warn };
    const app = await NestFactory.createApplicationContext(AppModule, { logger, abortOnError: false });
    await app.close();
    return lines;
  } catch (error) {
    return (error as Error).message.split('\n').slice(1);
  }
}

const scheduled = [ScheduleModule.forRoot()];

describe('two locks on one method', () => {
  it('fail the boot if the lower one waits for the upper one', async () => {
    @Injectable()
    class Orders {
      @DistributedLock('order:#{id}')
      @DistributedLock('order:#{id}')
      async twice(id: string) {
        return id;
      }
      @RunOnce('nightly', { minHold: '1m' })
      @DistributedLock(['other', 'nightly'])
      async job() {}
      @DistributedLock('mixed')
      @DistributedLock('mixed', { mode: 'shared' })
      async mixed() {}
    }
    const remedy = ', so the lower one waits for the upper one: remove one, or set reentrant: true on the lower one';
    expect(await said([], Orders)).toEqual([
      `  - Orders.twice: two of its locks have the key "order:#{id}"${remedy}`,
      `  - Orders.job: two of its locks have the key "nightly"${remedy}`,
      `  - Orders.mixed: two of its locks have the key "mixed"${remedy}`,
    ]);
  });

  it('boot if both can be held', async () => {
    @Injectable()
    class Orders {
      @DistributedLock('a')
      @DistributedLock('a', { reentrant: true })
      async entered() {}
      @DistributedLock('a', { mode: 'shared' })
      @DistributedLock('a', { mode: 'shared' })
      async shared() {}
      @DistributedLock('a', { limit: 2 })
      @DistributedLock('a', { limit: 2 })
      async limited() {}
      @DistributedLock('a', { provider: 'a' })
      @DistributedLock('a', { provider: 'b' })
      async elsewhere() {}
      @DistributedLock('order:#{one}')
      @DistributedLock('order:#{other}')
      async different(one: string, other: string) {
        return one + other;
      }
    }
    expect(await said([], Orders)).toEqual([]);
  });
});

describe("a lock on a leader's key", () => {
  it('fails the boot if it can never be acquired', async () => {
    @Injectable()
    class Prices {
      @RunAsLeader('prices')
      async follow(term: LeaderTerm) {
        return term.key;
      }
      @Cron('0 3 * * *')
      @RunOnce('prices')
      async nightly() {}
      @Interval(1_000)
      @DistributedLock('prices', { onBusy: 'skip' })
      async often() {}
      @DistributedLock('sums')
      @OnlyLeader('sums')
      async above() {}
      @DistributedLock('totals', { reentrant: true })
      @OnlyLeader('totals')
      async aboveReentrant() {}
      @OnlyLeader('means')
      @DistributedLock('means')
      async below() {}
      @OnlyLeader('prices')
      @DistributedLock('prices')
      async joins() {}
    }
    const never =
      '@RunAsLeader on Prices.follow holds the key "prices" for its whole term, so no scheduled run gets the lock: ' +
      'give the job another key, or replace its lock with @OnlyLeader("prices")';
    const own = (key: string) =>
      `@OnlyLeader holds the key "${key}" for its whole term, so the lock on the same key waits for it: remove that lock, or give it another key`;
    expect(await said(scheduled, Prices)).toEqual([
      `  - Prices.nightly: ${never}`,
      `  - Prices.often: ${never}`,
      `  - Prices.above: ${own('sums')}`,
      `  - Prices.aboveReentrant: ${own('totals')}`,
      `  - Prices.below: ${own('means')}`,
      `  - Prices.joins: ${own('prices')}`,
    ]);
  });

  it('logs a warning if it can be acquired only during the term, and none if it is a different lock', async () => {
    @Injectable()
    class Prices {
      @RunAsLeader('prices')
      async follow(term: LeaderTerm) {
        await once(term.signal, 'abort');
      }
      @DistributedLock('prices')
      async load() {}
      @DistributedLock('prices', { reentrant: true })
      async enter() {}
      @Cron('0 3 * * *')
      @DistributedLock('prices', { provider: 'b', minHold: 1 })
      async elsewhere() {}
      @Cron('0 3 * * *')
      @OnlyLeader('prices')
      @DistributedLock('prices', { reentrant: true, minHold: 1 })
      async nested() {}
    }
    expect(await said(scheduled, Prices)).toEqual([
      'Prices.load locks "prices", which @RunAsLeader on Prices.follow holds for its whole term, so only calls under the leader lock can acquire it: ' +
        'give one of them another key, or call the method through currentLock().run() in the leader task.',
    ]);
  });
});

describe('a schedule without ScheduleModule', () => {
  @Injectable()
  class Jobs {
    @Cron('0 3 * * *')
    @RunOnce('nightly')
    async nightly() {}
    @Cron('0 4 * * *')
    @OnlyLeader('jobs')
    async early() {}
    @DistributedLock('a')
    async other() {}
  }

  it('logs one warning', async () => {
    expect(await said([], Jobs)).toEqual([
      'Nothing calls Jobs.nightly, Jobs.early on schedule, because the application does not import ScheduleModule: ' +
        'import ScheduleModule.forRoot() from @nestjs/schedule, with { cronJobs: false } in a process that must not schedule jobs.',
    ]);
  });

  it('logs no warning in a process that deliberately schedules no jobs', async () => {
    expect(await said([ScheduleModule.forRoot({ cronJobs: false })], Jobs)).toEqual([]);
    expect(await said(scheduled, Jobs)).toEqual([]);
  });
});
