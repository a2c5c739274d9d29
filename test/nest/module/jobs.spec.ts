import { once } from 'node:events';
import { Injectable, type LoggerService, Module, type OnApplicationBootstrap, Scope } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Cron, type CronOptions, Interval, ScheduleModule, SchedulerRegistry, Timeout } from '@nestjs/schedule';
import {
  currentLock,
  DistributedLockModule,
  type DistributedLockModuleOptions,
  type JobState,
  type ListedJob,
  LockAdmin,
  LockConfigError,
  LockDefaults,
  LockService,
  MemoryLockProvider,
  MemoryStore,
  OnlyLeader,
  RunOnce,
  type SkipReason,
} from '../../../lib/index.js';
import { CombinedLockProvider } from '../../../lib/composite.js';
import { type JobRecord, recordText } from '../../../lib/core/job-record.js';
import { cronMarkOf } from '../../../lib/nest/methods/schedule-metadata.js';
import { type AppOptions, close, Gate, isNest11, start, until } from '../apps.js';
import type { CronTime } from 'cron';

const EVERY_SECOND = '* * * * * *';
const YEARLY = '0 0 1 1 *';
const UTC = { timeZone: 'UTC' };
const newYear = (year = new Date().getUTCFullYear()) => Date.UTC(year, 0, 1);

/** Locks and job records shared by a test's applications, as if on one server. */
let store: MemoryStore;
beforeEach(() => {
  store = new MemoryStore();
});

const onStore = (): DistributedLockModuleOptions => ({ provider: new MemoryLockProvider({ store }) });

/** Starts an application with these providers and the real scheduler. */
async function boot(providers: (new (admin: LockAdmin) => object)[], options: AppOptions = {}) {
  const locks = options.providers ? options : { ...onStore(), ...options };
  return await start({ imports: [ScheduleModule.forRoot()], providers }, locks);
}

async function jobsOf(admin: LockAdmin): Promise<ListedJob[]> {
  const jobs = [];
  for await (const job of admin.jobs()) jobs.push(job);
  return jobs;
}

/** Returns the tick of the run in the job record. */
async function tickOf(admin: LockAdmin): Promise<number> {
  const [job] = await jobsOf(admin);
  return job?.tick.getTime() ?? Number.NaN;
}

/** Stores a job record as if by an earlier run. */
function recorded(record: Partial<JobRecord>): void {
  const text = recordText({
    ...{ tick: newYear() - 1, run: 'before', state: 'ended', startedAt: newYear() - 1, endedAt: newYear() - 1 },
    ...{ instance: 'another', attempt: 1, schedule: `${YEARLY} (UTC)`, ...record },
  });
  store.records.set('lock:report', text);
}

class CapturingLogger implements LoggerService {
  readonly warnings: string[] = [];
  readonly errors: string[] = [];
  readonly lines: string[] = [];
  log = (message: string) => void this.lines.push(message);
  warn = (message: string) => void this.warnings.push(message);
  error = (message: string) => void this.errors.push(message);
}

it('a method with only @Cron and @RunOnce runs once for each tick, however many instances fire', async () => {
  const runs: number[] = [];
  @Injectable()
  class Jobs {
    constructor(private readonly admin: LockAdmin) {}

    @Cron(EVERY_SECOND)
    @RunOnce('report')
    async report() {
      runs.push(await tickOf(this.admin));
    }
  }
  const skips: SkipReason[] = [];
  for (let instance = 0; instance < 3; instance += 1) {
    const app = await boot([Jobs]);
    app.get(LockService).events.on('skipped', ({ reason }) => skips.push(reason));
  }
  await until(() => runs.length >= 3);
  expect(new Set(runs).size).toBe(runs.length);
  expect(skips.length).toBeGreaterThanOrEqual(runs.length);
  expect(new Set(skips)).toEqual(new Set(['done']));
});

it('a timer that fires late, because the event loop was blocked for 1.7 s, runs the tick that was due', async () => {
  const runs: { readonly tick: number; readonly at: number }[] = [];
  @Injectable()
  class Jobs {
    constructor(private readonly admin: LockAdmin) {}

    @Cron(EVERY_SECOND)
    @RunOnce('report')
    async report() {
      const at = Date.now();
      runs.push({ tick: await tickOf(this.admin), at });
    }
  }
  await boot([Jobs]);
  await until(() => runs.length >= 2);
  const blockedUntil = Date.now() + 1_700;
  while (Date.now() < blockedUntil);
  const before = runs.length;
  await until(() => runs.length >= before + 3);
  for (const { tick, at } of runs) {
    expect(tick % 1_000).toBe(0);
    // Never the next tick, which isn't due yet. cron may fire a few ms early.
    expect(tick).toBeLessThanOrEqual(at + 50);
  }
  expect(new Set(runs.map(({ tick }) => tick)).size).toBe(runs.length);
});

/** The signal may already have aborted, because `maxHold` counts from the grant. */
function aborted(signal: AbortSignal): Promise<unknown> {
  return signal.aborted ? Promise.resolve() : once(signal, 'abort');
}

describe('a call of a job', () => {
  @Injectable()
  class Jobs {
    runs = 0;
    end: Promise<unknown> = Promise.resolve();

    @RunOnce('report', { maxHold: '1h' })
    @Cron(YEARLY, { ...UTC, name: 'report' })
    async report(): Promise<readonly string[] | undefined> {
      this.runs += 1;
      await this.end;
      return currentLock().keys;
    }
  }

  it('belongs to the latest tick, whichever instance makes it', async () => {
    const [one, other] = [await boot([Jobs], { instance: 'one' }), await boot([Jobs], { instance: 'other' })];
    const skips: unknown[] = [];
    other.get(LockService).events.on('skipped', (event) => skips.push(event));
    await expect(one.get(Jobs).report()).resolves.toEqual(['report']);
    await expect(other.get(Jobs).report()).resolves.toBeUndefined();
    await expect(one.get(Jobs).report()).resolves.toBeUndefined();
    expect(skips).toMatchObject([{ key: 'report', method: 'Jobs.report', template: 'report', reason: 'done' }]);
    const expected = { key: 'report', state: 'ended', instance: 'one', schedule: `${YEARLY} (UTC)`, attempt: 1 };
    await expect(jobsOf(other.get(LockAdmin))).resolves.toMatchObject([
      { ...expected, tick: new Date(newYear()), nextTick: new Date(newYear(new Date().getUTCFullYear() + 1)) },
    ]);
  });

  it('records its end, even a failure, before its lock is released, and is not repeated', async () => {
    const app = await boot([Jobs]);
    const jobs = app.get(Jobs);
    let fail!: (error: Error) => void;
    jobs.end = new Promise((_, reject) => (fail = reject));
    const run = jobs.report();
    await until(() => jobs.runs === 1);
    await expect(jobsOf(app.get(LockAdmin))).resolves.toMatchObject([{ state: 'running', endedAt: null }]);
    fail(new Error('its own'));
    await expect(run).rejects.toThrow('its own');
    await expect(jobsOf(app.get(LockAdmin))).resolves.toMatchObject([{ state: 'failed' }]);
    await jobs.report();
    expect(jobs.runs).toBe(1);
  });

  it('holds a lock with a signal and maxHold, like that of a decorated method', async () => {
    @Injectable()
    class Long {
      @Cron(YEARLY)
      @RunOnce('report', { maxHold: 200 })
      async report() {
        const { signal } = currentLock();
        await aborted(signal);
      }
    }
    const app = await boot([Long]);
    await expect(app.get(Long).report()).rejects.toMatchObject({ name: 'LockLostError', reason: 'max-hold' });
    await expect(jobsOf(app.get(LockAdmin))).resolves.toMatchObject([{ state: 'ended' }]);
  });

  it('uses the defaults of its class', async () => {
    @Injectable()
    @LockDefaults({ provider: 'second', onLost: 'ignore', maxHold: 200, wait: '1h' })
    class Long {
      @Cron(YEARLY)
      @RunOnce('report')
      async report(): Promise<string | undefined> {
        const { signal, provider } = currentLock();
        await aborted(signal);
        return provider;
      }
    }
    const providers = { first: new MemoryLockProvider(), second: new MemoryLockProvider() };
    const app = await boot([Long], { providers, default: 'first' });
    await expect(app.get(Long).report()).resolves.toBe('second');
  });

  it('works with a plain function that returns a promise, and refuses one that returns a generator', async () => {
    @Injectable()
    class Plain {
      @Cron(YEARLY)
      @RunOnce('report')
      report(): Promise<string | undefined> {
        return Promise.resolve('sent');
      }
      @Cron(YEARLY)
      @RunOnce('rows')
      rows(): Promise<unknown> {
        return (async function* () {
          yield 1;
        })() as never;
      }
    }
    const app = await boot([Plain]);
    await expect(app.get(Plain).report()).resolves.toBe('sent');
    await expect(app.get(Plain).report()).resolves.toBeUndefined();
    await expect(app.get(Plain).rows()).rejects.toThrow(/^Plain\.rows returns a stream that would be read/);
  });

  it.each<[string, CronOptions, string]>([
    ['timeZone', { timeZone: 'Asia/Tokyo' }, 'Asia/Tokyo'],
    ['utcOffset', { utcOffset: -210 }, 'UTC-03:30'],
    ['neither', {}, Intl.DateTimeFormat().resolvedOptions().timeZone],
  ])('uses the ticks of its time zone: %s', async (_, options, zone) => {
    @Injectable()
    class Zoned {
      @Cron('30 4 1 1 *', options)
      @RunOnce('report')
      async report() {}
    }
    const app = await boot([Zoned]);
    await app.get(Zoned).report();
    const [job] = await jobsOf(app.get(LockAdmin));
    expect(job?.schedule).toBe(`30 4 1 1 * (${zone})`);
    const registered = [...app.get(SchedulerRegistry).getCronJobs().values()][0];
    expect(job?.nextTick).toEqual(registered?.nextDate().toJSDate());
  });

  it('uses the current ticks if its application has changed the schedule', async () => {
    @Injectable()
    class Changed {
      runs = 0;
      @Cron(YEARLY, { ...UTC, name: 'changed' })
      @RunOnce('report')
      async report() {
        this.runs += 1;
      }
    }
    const app = await boot([Changed]);
    await app.get(Changed).report();
    const job = app.get(SchedulerRegistry).getCronJob('changed');
    job.setTime(new (job.cronTime.constructor as typeof CronTime)('0 0 2 1 *', 'Asia/Tokyo'));
    await app.get(Changed).report();
    expect(app.get(Changed).runs).toBe(2);
    await expect(jobsOf(app.get(LockAdmin))).resolves.toMatchObject([
      { schedule: '0 0 2 1 * (Asia/Tokyo)', nextTick: job.nextDate().toJSDate() },
    ]);
  });

  it('belongs to the date if the method is scheduled at a date', async () => {
    const date = new Date(Date.now() + 3_000);
    @Injectable()
    class Once {
      runs = 0;
      @Cron(date)
      @RunOnce('report')
      async report() {
        this.runs += 1;
      }
    }
    const [one, other] = [await boot([Once]), await boot([Once])];
    await until(() => one.get(Once).runs + other.get(Once).runs === 1);
    await one.get(Once).report();
    await other.get(Once).report();
    expect(one.get(Once).runs + other.get(Once).runs).toBe(1);
    await expect(jobsOf(one.get(LockAdmin))).resolves.toMatchObject([{ tick: date, nextTick: null }]);
  });

  it('reads its options from the configuration', async () => {
    @Injectable()
    class Configured {
      runs = 0;
      @Cron(YEARLY)
      @RunOnce('report', (config: { minHold?: string; maxHold?: string }) => config)
      async report() {
        this.runs += 1;
      }
    }
    const ticks = await boot([Configured], { config: { maxHold: '1h' } });
    await ticks.get(Configured).report();
    expect(store.records.size).toBe(1);
    store.records.clear();
    const kept = await boot([Configured], { config: { minHold: '100ms' } });
    await kept.get(Configured).report();
    expect([kept.get(Configured).runs, store.records.size]).toEqual([1, 0]);
  });
});

it('a call from the run itself is refused because it would be skipped, as in an override that calls super', async () => {
  class Base {
    @Cron(YEARLY, UTC)
    @RunOnce('report')
    async run(): Promise<void> {}
  }
  @Injectable()
  class Jobs extends Base {
    @Cron(YEARLY, UTC)
    @RunOnce('report')
    override run(): Promise<void> {
      return super.run();
    }
  }
  const app = await boot([Jobs]);
  await expect(app.get(Jobs).run()).rejects.toThrow('Job "report" was called from its own run');
});

describe('a job with minHold', () => {
  it('has no record', async () => {
    @Injectable()
    class Jobs {
      runs = 0;
      @Cron(YEARLY)
      @RunOnce('report', { minHold: 0 })
      async report() {
        this.runs += 1;
      }
    }
    const app = await boot([Jobs]);
    await app.get(Jobs).report();
    await app.get(Jobs).report();
    expect(app.get(Jobs).runs).toBe(2);
    expect(store.records.size).toBe(0);
    await expect(app.get(LockAdmin).runNow('report')).rejects.toThrow(
      /runNow\(\) found no job 'report' .*Import the module that has it.*cronJobs: false.* The jobs are none\.$/,
    );
  });
});

describe('a job that the process does not schedule', () => {
  @Injectable()
  class Jobs {
    runs = 0;
    @Cron(YEARLY, UTC)
    @RunOnce('report', { catchUp: '24d', afterCrash: 1 })
    async report() {
      this.runs += 1;
    }
  }
  const message =
    /^Job "report" was called in a process that does not schedule cron jobs, .* cronJobs: false, .* LockAdmin\.runNow\('report'\)/;

  it.each([
    ['cronJobs: false', { imports: [ScheduleModule.forRoot({ cronJobs: false })] }],
    ['there is no ScheduleModule', {}],
  ])('rejects calls because they have no tick, but runs on runNow(): %s', async (_, metadata) => {
    recorded({ state: 'running', endedAt: null });
    const app = await start({ ...metadata, providers: [Jobs] }, onStore());
    await expect(app.get(Jobs).report()).rejects.toThrow(LockConfigError);
    await expect(app.get(Jobs).report()).rejects.toThrow(message);
    await expect(jobsOf(app.get(LockAdmin))).resolves.toMatchObject([{ state: 'running', nextTick: null }]);
    await expect(app.get(LockAdmin).runNow('report')).resolves.toBe(true);
    expect(app.get(Jobs).runs).toBe(1);
  });

  it('rejects calls before the scheduler has started, because they have no tick', async () => {
    let early: unknown;
    @Injectable()
    class Early {
      @Cron(YEARLY)
      @RunOnce('early')
      async report() {}
      async onModuleInit() {
        early = await this.report().catch((error: unknown) => error);
      }
    }
    await boot([Early]);
    expect(early).toBeInstanceOf(LockConfigError);
    expect(String(early)).toMatch(/has not started yet/);
  });

  it('can be called if it is disabled, and does not catch up', async () => {
    @Injectable()
    class Disabled {
      runs = 0;
      @Cron(YEARLY, { ...UTC, disabled: true })
      @RunOnce('report', { afterCrash: 5 })
      async report() {
        this.runs += 1;
      }
    }
    recorded({ state: 'running', endedAt: null });
    const app = await boot([Disabled]);
    const abandoned: unknown[] = [];
    app.get(LockService).events.on('run-abandoned', (event) => abandoned.push(event));
    await app.get(Disabled).report();
    expect(app.get(Disabled).runs).toBe(1);
    expect(abandoned).toMatchObject([{ again: false }]);
  });

  it('assigns calls to the latest tick if its provider is request-scoped, and runNow() does not find it', async () => {
    @Injectable({ scope: Scope.REQUEST })
    class Scoped {
      static runs = 0;
      @Cron(YEARLY)
      @RunOnce('scoped', { catchUp: '24d' })
      async report() {
        Scoped.runs += 1;
      }
    }
    const app = await boot([Scoped, Jobs]);
    const scoped = await app.resolve(Scoped);
    await scoped.report();
    await (await app.resolve(Scoped)).report();
    expect(Scoped.runs).toBe(1);
    await expect(app.get(LockAdmin).runNow('scoped')).rejects.toThrow(
      /no job 'scoped' .* The jobs are "report" \(provider "default"\)/,
    );
  });
});

describe('runNow()', () => {
  @Injectable()
  class Jobs {
    runs = 0;
    gate: Promise<void> = Promise.resolve();
    @Cron(YEARLY, UTC)
    @RunOnce('report')
    async report() {
      this.runs += 1;
      expect(currentLock('report').isHeld()).toBe(true);
      await this.gate;
    }
  }

  it('runs the job under its lock without a tick, so that the tick is still due', async () => {
    const app = await boot([Jobs]);
    const admin = app.get(LockAdmin);
    await expect(admin.runNow('report')).resolves.toBe(true);
    await expect(admin.runNow('report')).resolves.toBe(true);
    expect([app.get(Jobs).runs, store.records.size]).toEqual([2, 0]);
    await app.get(Jobs).report();
    await expect(admin.runNow('report')).resolves.toBe(true);
    expect(app.get(Jobs).runs).toBe(4);
    await expect(jobsOf(admin)).resolves.toMatchObject([{ tick: new Date(newYear()), state: 'ended' }]);
    await expect(app.get(LockService).isLocked('report')).resolves.toBe(false);
  });

  it('does not run a job that is running, and passes on its errors', async () => {
    const [one, other] = [await boot([Jobs]), await boot([Jobs])];
    const gate = new Gate();
    const skips: unknown[] = [];
    other.get(LockService).events.on('skipped', ({ reason }) => skips.push(reason));
    one.get(Jobs).gate = gate.opened;
    const run = one.get(Jobs).report();
    await until(() => one.get(Jobs).runs === 1);
    await expect(other.get(LockAdmin).runNow('report')).resolves.toBe(false);
    expect([other.get(Jobs).runs, skips]).toEqual([0, ['busy']]);
    gate.open();
    await run;
    other.get(Jobs).gate = Promise.reject(new Error('its own'));
    await expect(other.get(LockAdmin).runNow('report')).rejects.toThrow('its own');
    await expect(other.get(LockService).isLocked('report')).resolves.toBe(false);
  });

  it('requires the provider if two providers have a job with that key', async () => {
    @Injectable()
    class Two {
      runs: string[] = [];
      @Cron(YEARLY)
      @RunOnce('report', { provider: 'first' })
      async one() {
        this.runs.push('one');
      }
      @Cron(YEARLY)
      @RunOnce('report', { provider: 'second' })
      async other() {
        this.runs.push('other');
      }
    }
    const providers = { first: new MemoryLockProvider(), second: new MemoryLockProvider() };
    const app = await boot([Two], { providers, default: 'first' });
    const admin = app.get(LockAdmin);
    await expect(admin.runNow('report')).rejects.toThrow(/Job 'report' exists on several providers/);
    await admin.runNow('report', 'second');
    expect(app.get(Two).runs).toEqual(['other']);
    await expect(admin.runNow('none', 'second')).rejects.toThrow(/The jobs are "report" \(provider "second"\)\.$/);
  });

  it('reports that a wrapper of the method skips calls', async () => {
    const skips = (_: object, __: string, descriptor: PropertyDescriptor) => {
      const original = descriptor.value as object;
      descriptor.value = () => Promise.resolve();
      for (const key of Reflect.getMetadataKeys(original) as unknown[]) {
        Reflect.defineMetadata(key, Reflect.getMetadata(key, original), descriptor.value as object);
      }
    };
    @Injectable()
    class Skipping {
      @skips
      @Cron(YEARLY)
      @RunOnce('report')
      async report() {}
    }
    const app = await boot([Skipping]);
    await expect(app.get(LockAdmin).runNow('report')).rejects.toThrow(/was called by runNow\(\), but did not run/);
    await expect(app.get(LockService).isLocked('report')).resolves.toBe(false);
  });
});

describe('missed and abandoned runs', () => {
  const DAY = 86_400_000;
  const WEEK = 7 * DAY;
  const WEEKLY = '0 0 * * 0';
  const schedule = `${WEEKLY} (UTC)`;
  // January 1, 1970 was a Thursday.
  const latest = () => Math.floor((Date.now() - 3 * DAY) / WEEK) * WEEK + 3 * DAY;
  /** Records that the tick before the latest one ran. */
  const missed = () => {
    recorded({ tick: latest() - WEEK, startedAt: latest() - WEEK, endedAt: latest() - WEEK, schedule });
  };

  it.each(['locks first', 'scheduler first'])('are made up after all hooks of the boot: %s', async (imports) => {
    missed();
    const order: string[] = [];
    @Injectable()
    class Jobs {
      @Cron(WEEKLY, UTC)
      @RunOnce('report', { catchUp: '20d' })
      async report() {
        order.push('run');
      }
    }
    const locks = DistributedLockModule.forRoot(onStore());
    const both = [locks, ScheduleModule.forRoot()];
    if (imports === 'scheduler first') both.reverse();
    @Module({ imports: both, providers: [Jobs] })
    class Root implements OnApplicationBootstrap {
      async onApplicationBootstrap() {
        await new Promise((resolve) => setTimeout(resolve, 50));
        order.push('hook');
      }
    }
    const app = await NestFactory.createApplicationContext(Root, { logger: false, abortOnError: false });
    await until(() => order.length === 2);
    await close(app);
    expect(order).toEqual(['hook', 'run']);
  });

  it("call the instance's method, including the wrappers of other decorators", async () => {
    missed();
    const seen: unknown[] = [];
    const around = (_: object, __: string, descriptor: PropertyDescriptor) => {
      const original = descriptor.value as (...args: unknown[]) => Promise<unknown>;
      descriptor.value = async function (this: Jobs, ...args: unknown[]) {
        seen.push(['around', this.name]);
        return await original.apply(this, args);
      };
      for (const key of Reflect.getMetadataKeys(original) as unknown[]) {
        Reflect.defineMetadata(key, Reflect.getMetadata(key, original), descriptor.value as object);
      }
    };
    @Injectable()
    class Jobs {
      readonly name = 'jobs';
      @around
      @Cron(WEEKLY, UTC)
      @RunOnce('report', { catchUp: '20d' })
      async report() {
        seen.push(['run', this.name, currentLock().key]);
      }
    }
    // Two modules provide the class, so it has two instances, but only one job.
    @Module({ providers: [Jobs] })
    class Other {}
    const app = await start({ imports: [ScheduleModule.forRoot(), Other], providers: [Jobs] }, onStore());
    await until(() => seen.length === 2);
    expect(seen).toEqual([
      ['around', 'jobs'],
      ['run', 'jobs', 'report'],
    ]);
    await until(() => store.records.get('lock:report')?.includes('"ended"') === true);
    const [job] = await jobsOf(app.get(LockAdmin));
    expect(job).toMatchObject({ state: 'ended', attempt: 1, tick: new Date(latest()) });
  });

  it('restart after a crash as often as afterCrash allows', async () => {
    recorded({ tick: latest(), state: 'running', startedAt: latest(), endedAt: null, schedule });
    let runs = 0;
    @Injectable()
    class Jobs {
      @Cron(WEEKLY, UTC)
      @RunOnce('report', { afterCrash: 1 })
      async report() {
        runs += 1;
      }
    }
    const app = await boot([Jobs]);
    await until(() => runs === 1);
    await close(app);
    expect(store.records.get('lock:report')).toMatch(/"state":"ended".*"attempt":2/);
  });

  it.each<[string, JobState | 'none', Partial<JobRecord>]>([
    ['the first deployment', 'none', {}],
    ['a deployment that changes the schedule', 'ended', { tick: latest() - DAY, schedule: '30 * * * * (UTC)' }],
  ])('do not exist after %s: the latest tick is the baseline', async (_, state, record) => {
    if (state !== 'none') recorded(record);
    let runs = 0;
    @Injectable()
    class Jobs {
      @Cron(WEEKLY, UTC)
      @RunOnce('report', { catchUp: '20d' })
      async report() {
        runs += 1;
      }
    }
    const app = await boot([Jobs]);
    await until(() => store.records.get('lock:report')?.includes('"baseline"') === true);
    await expect(jobsOf(app.get(LockAdmin))).resolves.toMatchObject([
      { state: 'baseline', attempt: 0, tick: new Date(latest()), schedule },
    ]);
    expect(runs).toBe(0);
  });

  it('are left to other instances when the application stops', async () => {
    missed();
    let runs = 0;
    @Injectable()
    class Jobs {
      @Cron(WEEKLY, UTC)
      @RunOnce('report', { catchUp: '20d', afterCrash: 1 })
      async report() {
        runs += 1;
      }
    }
    @Module({ imports: [DistributedLockModule.forRoot(onStore()), ScheduleModule.forRoot()], providers: [Jobs] })
    class Root {}
    const app = await NestFactory.createApplicationContext(Root, { logger: false, abortOnError: false });
    const before = store.records.get('lock:report');
    await app.close();
    await new Promise((resolve) => setTimeout(resolve, 20));
    // Either it started before the shutdown, which then waited for it, or it didn't start at all.
    expect(store.records.get('lock:report')).toEqual(runs === 0 ? before : expect.stringContaining('"ended"'));
  });
});

it('warns once if instances use one cron expression in two time zones', async () => {
  const daily = (timeZone: string) => {
    @Injectable()
    class Jobs {
      @Cron('0 3 * * *', { timeZone })
      @RunOnce('report')
      async report() {}
    }
    return Jobs;
  };
  const [Berlin, Tokyo] = [daily('Europe/Berlin'), daily('Asia/Tokyo')];
  const one = await boot([Berlin]);
  await one.get(Berlin).report();
  const logger = new CapturingLogger();
  const other = await boot([Tokyo], { logger });
  await other.get(Tokyo).report();
  await other.get(Tokyo).report();
  expect(logger.warnings).toEqual([
    expect.stringMatching(/\(Asia\/Tokyo\), but .* \(Europe\/Berlin\)\. Set "timeZone"/),
  ]);
});

describe('the boot', () => {
  async function problemsOf(providers: (new () => object)[], options: DistributedLockModuleOptions = {}) {
    const error: unknown = await boot(providers, options).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LockConfigError);
    const [head, ...problems] = (error as Error).message.split('\n  - ');
    expect(head).toBe('These locked methods cannot work:');
    return problems;
  }

  it('fails for methods without ticks, each with the remedy', async () => {
    const Untyped = RunOnce as (...args: unknown[]) => MethodDecorator;
    @Injectable()
    class Jobs {
      @RunOnce('a')
      async unscheduled() {}
      @Interval(100_000)
      @RunOnce('b')
      async interval() {}
      @RunOnce('c', { maxHold: '1m' })
      @Timeout(100_000)
      async timeout() {}
      @Cron(YEARLY)
      @RunOnce('tenant:#{tenant}')
      async parameter(tenant?: string): Promise<string | undefined> {
        return tenant;
      }
      @Cron(YEARLY)
      @RunOnce('tenant:#{ctx.tenant}')
      async context() {}
      @Cron(YEARLY)
      @RunOnce('e')
      async *rows() {
        yield 1;
      }
      @Cron(YEARLY)
      @Untyped('f', () => ({ catchUp: 'soon' }))
      async late() {}
      @Cron(YEARLY)
      @RunOnce('g', () => ({ minHold: '1m', afterCrash: 1 }) as never)
      async both() {}
      @Cron(YEARLY)
      @RunOnce('#{class}.#{method}')
      async fine() {}
    }
    const options = { config: {}, context: { tenant: () => 'a' } };
    await expect(problemsOf([Jobs], options)).resolves.toEqual([
      expect.stringMatching(/^Jobs\.unscheduled: @RunOnce has no "minHold", .* add @Cron; set "minHold".* \{ due \}/),
      expect.stringMatching(/^Jobs\.interval: @RunOnce has no "minHold", and @Interval has no ticks .*: set "minHold"/),
      expect.stringMatching(/^Jobs\.timeout: @RunOnce has no "minHold", and @Timeout has no ticks .*: set "minHold"/),
      expect.stringMatching(/^Jobs\.parameter: .* its key must be the same for all calls: .* set "minHold"/),
      expect.stringMatching(/^Jobs\.context: .* its key must be the same for all calls/),
      expect.stringMatching(/^Jobs\.rows: it returns a stream/),
      expect.stringMatching(/^Jobs\.late: @RunOnce: "catchUp" is 'soon'/),
      expect.stringMatching(/^Jobs\.both: Options "minHold" and "afterCrash" of @RunOnce are mutually exclusive/),
    ]);
  });

  const withoutRecords = () => ({
    providers: {
      ...{ one: new MemoryLockProvider(), other: new MemoryLockProvider() },
      both: new CombinedLockProvider({ providers: ['one', 'other'] }),
    },
    default: 'both',
  });

  it('fails for a provider without records', async () => {
    @Injectable()
    class Jobs {
      @Cron(YEARLY)
      @RunOnce('report')
      async report() {}
      @Cron(YEARLY)
      @RunOnce('other', { provider: 'other' })
      async other() {}
    }
    await expect(problemsOf([Jobs], withoutRecords())).resolves.toEqual([
      expect.stringMatching(/^Jobs\.report: Lock provider "both" does not store records, .*: set "minHold"/),
    ]);
  });

  it('reports providers without records only in applications that schedule jobs', async () => {
    @Injectable()
    class Jobs {
      @Cron(YEARLY)
      @RunOnce('report', { minHold: '1m', provider: 'one' })
      async report() {}
    }
    const [scheduled, others] = [new CapturingLogger(), new CapturingLogger()];
    await boot([Jobs], { ...withoutRecords(), logger: scheduled });
    await boot([], { ...withoutRecords(), logger: others });
    expect(scheduled.lines.filter((line) => line.includes('no records'))).toEqual([
      expect.stringMatching(/^Lock provider "both" .*, no records, so jobs need "minHold"$/),
    ]);
    expect(others.lines).toHaveLength(3);
    expect(others.lines.join('\n')).not.toContain('records');
  });

  it('fails for a decorator between @Cron and @RunOnce that replaces the method without its metadata', async () => {
    const Replaces = () => (_: object, __: string, descriptor: TypedPropertyDescriptor<() => Promise<void>>) => {
      const original = descriptor.value!;
      descriptor.value = function (this: unknown) {
        return original.call(this);
      };
    };
    @Injectable()
    class Jobs {
      @Cron(YEARLY)
      @Replaces()
      @RunOnce('report')
      async report() {}

      @Cron(YEARLY)
      @RunOnce('other')
      @Replaces()
      async other() {}
    }
    await expect(problemsOf([Jobs])).resolves.toEqual([
      expect.stringMatching(/^Jobs\.report: a decorator between @Cron and @RunOnce has replaced the method/),
    ]);
  });

  it.each<[string, (registry: SchedulerRegistry, name: string) => unknown]>([
    ['CronJob.stop()', (registry, name) => registry.getCronJob(name).stop()],
    ['deleteCronJob()', (registry, name) => registry.deleteCronJob(name)],
  ])('records that the scheduler no longer fires a job, named or not, after %s', async (_, stop) => {
    @Injectable()
    class Jobs {
      @Cron(YEARLY, { name: 'named' })
      @RunOnce('named')
      async named() {}

      @Cron(YEARLY)
      @RunOnce('unnamed')
      async unnamed() {}

      @Cron(YEARLY)
      @RunOnce('kept')
      async kept() {}

      @Cron(YEARLY, { initialDelay: 60_000 })
      @RunOnce('delayed')
      async delayed() {}
    }
    const app = await boot([Jobs]);
    const { scheduler } = app.get(LockService);
    const fired = () =>
      (['named', 'unnamed', 'kept', 'delayed'] as const).filter((method) =>
        scheduler.fires(cronMarkOf(Jobs.prototype[method])!),
      );
    const delayed = isNest11 ? ['delayed'] : [];
    expect(fired()).toEqual(['named', 'unnamed', 'kept', ...delayed]);
    const registry = app.get(SchedulerRegistry, { strict: false });
    const names = [...registry.getCronJobs().keys()];
    stop(registry, 'named');
    stop(registry, names[1]!);
    expect(fired()).toEqual(['kept', ...delayed]);
  });

  it('fails for a job that only the leader runs, above or below', async () => {
    @Injectable()
    class Jobs {
      @Cron(YEARLY, UTC)
      @OnlyLeader('leader')
      @RunOnce('above', { catchUp: '6h' })
      async above() {}
      @Cron(YEARLY, UTC)
      @RunOnce('below')
      @OnlyLeader('leader')
      async below() {}
      @Cron(YEARLY, UTC)
      @OnlyLeader('leader')
      @RunOnce('held', { minHold: '1m' })
      async held() {}
    }
    const problem =
      'it has both @RunOnce and @OnlyLeader, so an instance that does not lead would start a run and then skip it: remove @OnlyLeader, since @RunOnce runs each tick in only one instance';
    await expect(boot([Jobs])).rejects.toThrow(`cannot work:\n  - Jobs.above: ${problem}\n  - Jobs.below: ${problem}`);
  });

  it('fails for two methods with one key', async () => {
    @Injectable()
    class Jobs {
      @Cron(YEARLY)
      @RunOnce('report')
      async one() {}
      @RunOnce('report')
      @Cron(EVERY_SECOND)
      async other() {}
    }
    @Injectable()
    class Inherits extends Jobs {}
    await expect(problemsOf([Jobs])).resolves.toEqual([
      expect.stringMatching(/^Jobs\.other: Jobs\.one also has the key "report", .*: give each its own key/),
    ]);
    @Injectable()
    class Base {
      @Cron(YEARLY)
      @RunOnce('#{class}')
      async run() {}
    }
    @Injectable()
    class One extends Base {}
    @Injectable()
    class Other extends Base {}
    await expect(problemsOf([One, Other])).resolves.toEqual([
      expect.stringMatching(/^Other\.run: One\.run also has the key "Base"/),
    ]);
    expect(Inherits).toBeDefined();
  });

  it('accepts methods that are inherited, overridden with another schedule, or overridden without one', async () => {
    const runs: string[] = [];
    class Base {
      @Cron(YEARLY)
      @RunOnce('a')
      async inherited() {
        runs.push('inherited');
      }
      @Cron(YEARLY)
      @RunOnce('b')
      async overridden() {
        runs.push('base');
      }
      @Cron(YEARLY)
      @RunOnce('c')
      async plain() {}
    }
    @Injectable()
    class Jobs extends Base {
      @Cron('0 0 2 1 *')
      @RunOnce('b')
      override async overridden() {
        runs.push('own');
      }
      override async plain() {}
      @Cron(YEARLY)
      @RunOnce('c')
      async another() {
        runs.push('another');
      }
    }
    const app = await boot([Jobs]);
    const admin = app.get(LockAdmin);
    for (const key of ['a', 'b', 'c']) await admin.runNow(key);
    expect(runs).toEqual(['inherited', 'own', 'another']);
  });
});
