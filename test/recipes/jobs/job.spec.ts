import { LockConfigError, LockUnavailableError } from '../../../lib/api/errors.js';
import { LockService } from '../../../lib/nest/service/lock.service.js';
import type { RunDueOptions } from '../../../lib/recipes/run-once.js';
import { deferred, startManager, watch } from '../../core/manager-rig.js';
import { ScriptedProvider } from '../../core/scripted-provider.js';
import { DAY, every, Fleet, HOUR, MINUTE, SECOND, START, unavailable } from './fleet.js';

let fleet: Fleet;
beforeEach(() => {
  fleet = new Fleet();
});

it('reads the record, takes the lock, records the begin, runs, records the end, releases', async () => {
  const one = await fleet.add({ task: () => one.commands.push('task') });
  await expect(one.fire()).resolves.toEqual({ ran: true, value: undefined });
  expect(one.commands).toEqual(['read', 'acquire', 'replace running', 'task', 'replace ended', 'release']);
  expect(fleet.record).toEqual({
    ...{ tick: START, state: 'ended', startedAt: START, endedAt: START, instance: 'i1', attempt: 1 },
    ...{ schedule: 'every 60000 (UTC)', run: expect.stringMatching(/^[0-9a-f]{32}$/) as string },
  });
});

it('takes no lock for a tick that was begun before', async () => {
  const one = await fleet.add();
  const other = await fleet.add();
  await one.fire();
  await expect(other.fire()).resolves.toEqual({ ran: false });
  expect(other.commands).toEqual(['read']);
  expect(other.skipped).toEqual(['done']);
  expect(other.of('skipped')[0]).toMatchObject({ key: 'report', provider: 'main', mode: 'exclusive' });
});

it.each([-MINUTE / 3, 40 * SECOND, -DAY])('a clock that is wrong by %d ms runs no tick twice', async (ahead) => {
  const one = await fleet.add();
  const other = await fleet.add({ ahead });
  await one.fire();
  // At the time at which it reads the same tick.
  await fleet.clock.advance(Math.max(0, -ahead) % MINUTE);
  await expect(other.fire()).resolves.toEqual({ ran: false });
  await fleet.clock.advance(MINUTE);
  await one.fire();
  expect([one.runs, other.runs]).toEqual([[START, START + MINUTE], []]);
});

it('a clock that is too early by a timer belongs to the tick that is due, and a late one to the tick before', async () => {
  const one = await fleet.add();
  await fleet.clock.advance(MINUTE - 50);
  await one.fire();
  await fleet.clock.advance(50 + MINUTE + 1_700);
  await one.fire();
  await fleet.clock.advance(58_000);
  await one.fire();
  expect(one.runs).toEqual([START + MINUTE, START + 2 * MINUTE]);
});

it.each([
  ['half a period', 30 * SECOND, 14 * SECOND, 16 * SECOND],
  ['a minute', HOUR, 59 * SECOND, 61 * SECOND],
])('refuses a tick that is ahead of the clock of the server by more than %s', async (_, period, little, much) => {
  const schedule = every(period);
  await fleet.clock.advance(period - Math.max(little, much) - SECOND);
  const before = fleet.now;
  const next = schedule.next(before)!;
  const far = await fleet.add({ schedule, ahead: next - before });
  await expect(far.fire()).resolves.toEqual({ ran: false });
  expect(far.commands).toEqual(['read']);
  expect(far.skipped).toEqual(['clock']);
  expect(far.log).toEqual([
    expect.stringMatching(/Job "report" was not run for .* ahead of the server clock .* Correct the clock/),
  ]);
  // Warned once an hour.
  await far.fire();
  expect(far.log).toHaveLength(1);
  await fleet.clock.advance(next - little - fleet.now);
  const near = await fleet.add({ schedule, ahead: little });
  await expect(near.fire()).resolves.toMatchObject({ ran: true });
  // The others run as ever.
  expect(near.runs).toEqual([next]);
});

describe('while another process has the lock', () => {
  it('waits until the tick is begun, and skips it', async () => {
    const one = await fleet.add();
    const other = await fleet.add();
    const begin = deferred();
    one.fault = (command) => (command === 'replace' ? begin.promise : undefined);
    const first = one.fire();
    await fleet.clock.advance(0);
    const second = watch(other.fire());
    await fleet.clock.advance(3 * SECOND);
    expect(second.state).toBe('pending');
    begin.resolve();
    await fleet.clock.advance(250);
    expect(second.value).toEqual({ ran: false });
    expect(other.skipped).toEqual(['done']);
    await first;
    expect(one.runs).toEqual([START]);
  });

  it('takes the lock when it is free and the tick was not begun', async () => {
    const one = await fleet.add();
    const lock = await one.locks.acquire('report');
    const other = await fleet.add();
    const run = watch(other.fire());
    await fleet.clock.advance(SECOND);
    expect(run.state).toBe('pending');
    await lock.release();
    await fleet.clock.advance(250);
    expect(other.runs).toEqual([START]);
  });

  it('takes the lock soon after the end of an earlier run', async () => {
    const end = deferred();
    const one = await fleet.add({ task: () => end.promise });
    const other = await fleet.add();
    const run = one.fire();
    await fleet.clock.advance(MINUTE);
    const next = other.fire();
    await fleet.clock.advance(SECOND);
    end.resolve();
    await run;
    await fleet.clock.advance(250);
    expect(other.runs).toEqual([START + MINUTE]);
    await next;
  });

  it('finds at the last look that an earlier run has lost its lock', async () => {
    const one = await fleet.add({ task: () => new Promise(() => undefined), lease: 3 * SECOND });
    const other = await fleet.add();
    void one.fire();
    await fleet.clock.advance(MINUTE);
    const next = watch(other.fire());
    await fleet.clock.advance(0);
    one.kill();
    await fleet.clock.advance(6 * SECOND);
    expect(next.value).toMatchObject({ ran: true });
    expect(other.runs).toEqual([START + MINUTE]);
  });

  it.each([
    [MINUTE, 5 * SECOND],
    [4 * SECOND, 2 * SECOND],
  ])('gives up after half a period, and at most 5 s: a period of %d ms', async (period, most) => {
    const one = await fleet.add();
    const other = await fleet.add({ schedule: every(period) });
    const lock = await one.locks.acquire('report');
    const run = watch(other.fire());
    await fleet.clock.advance(most - 1);
    expect(run.state).toBe('pending');
    await fleet.clock.advance(251);
    expect(run.value).toEqual({ ran: false });
    expect(other.skipped).toEqual(['busy']);
    await lock.release();
  });

  it('says that an earlier run has not ended', async () => {
    const end = deferred();
    const one = await fleet.add({ task: () => end.promise });
    const other = await fleet.add();
    let busy = 0;
    other.locks.events.on('busy', () => (busy += 1));
    const run = one.fire();
    await fleet.clock.advance(MINUTE);
    const skipped = other.fire();
    await fleet.clock.advance(6 * SECOND);
    await expect(skipped).resolves.toEqual({ ran: false });
    expect(other.skipped).toEqual(['overlap']);
    // At the beginning and at the end: between the two it reads the record.
    expect(busy).toBe(2);
    end.resolve();
    await run;
    await fleet.clock.advance(54 * SECOND);
    await other.fire();
    expect(other.runs).toEqual([START + 2 * MINUTE]);
  });
});

it('finds at the begin that another process has run the tick since the record was read', async () => {
  const one = await fleet.add();
  const other = await fleet.add();
  let isFirst = true;
  other.fault = async (command) => {
    if (command !== 'acquire' || !isFirst) return;
    isFirst = false;
    await one.fire();
  };
  await expect(other.fire()).resolves.toEqual({ ran: false });
  expect(other.commands).toEqual(['read', 'acquire', 'replace running', 'release']);
  expect(other.skipped).toEqual(['done']);
  expect(fleet.record).toMatchObject({ tick: START, instance: 'i1', state: 'ended' });
});

it('begins its tick all the same where another process has run an earlier one since the record was read', async () => {
  const one = await fleet.add();
  const ahead = await fleet.add({ ahead: 20 * SECOND });
  await fleet.clock.advance(45 * SECOND);
  ahead.fault = async (command) => {
    if (command !== 'acquire') return;
    ahead.fault = () => undefined;
    await one.fire();
  };
  await expect(ahead.fire()).resolves.toMatchObject({ ran: true });
  expect([one.runs, ahead.runs]).toEqual([[START], [START + MINUTE]]);
  expect(ahead.commands.filter((each) => each === 'replace running')).toHaveLength(2);
});

describe('the reply to a begin', () => {
  it('that is lost is asked for again: the run finds its own record', async () => {
    const one = await fleet.add();
    let lost = 0;
    const { records } = fleet.store;
    one.fault = (command, text) => {
      if (command !== 'replace' || lost === 3) return;
      lost += 1;
      // It was written.
      records.set('app:report', text!);
      throw unavailable();
    };
    const run = watch(one.fire());
    await fleet.clock.advance(SECOND);
    expect(run.value).toEqual({ ran: true, value: undefined });
    expect(one.runs).toEqual([START]);
    expect(fleet.record).toMatchObject({ state: 'ended', attempt: 1 });
  });

  it.each<[string, () => unknown]>([
    ['is an error', () => Promise.reject(unavailable())],
    ['does not come', () => new Promise(() => {})],
  ])('that %s for 5 s releases the lock and throws', async (_, answer) => {
    const one = await fleet.add();
    const other = await fleet.add();
    one.fault = (command) => (command === 'replace' ? answer() : undefined);
    const run = watch(one.fire());
    await fleet.clock.advance(4_500);
    expect(run.state).toBe('pending');
    await expect(other.locks.tryAcquire('report')).resolves.toBeNull();
    await fleet.clock.advance(500);
    expect(run.error).toBeInstanceOf(LockUnavailableError);
    expect(one.runs).toEqual([]);
    await other.fire();
    expect(other.runs).toEqual([START]);
  });

  it('that comes too late consumes the tick: it is at most once', async () => {
    const one = await fleet.add();
    const other = await fleet.add();
    one.fault = (command, text) => {
      if (command !== 'replace') return;
      fleet.store.records.set('app:report', text!);
      throw unavailable();
    };
    const run = watch(one.fire());
    await fleet.clock.advance(5 * SECOND);
    expect(run.error).toBeInstanceOf(LockUnavailableError);
    await other.fire();
    expect(other.skipped).toEqual(['done']);
    await fleet.clock.advance(MINUTE);
    await other.fire();
    expect(other.of('run-abandoned')).toEqual([
      {
        ...{ key: 'report', provider: 'main', tick: new Date(START), startedAt: new Date(START) },
        ...{ instance: 'i1', again: false },
      },
    ]);
    expect(other.runs).toEqual([START + MINUTE]);
  });
});

it('throws where the record cannot be read for 5 s, and takes no lock', async () => {
  const one = await fleet.add();
  one.fault = () => Promise.reject(unavailable());
  const run = watch(one.fire());
  await fleet.clock.advance(5 * SECOND);
  expect(run.error).toBeInstanceOf(LockUnavailableError);
  expect(one.commands).not.toContain('acquire');
});

describe('the end of a run', () => {
  it('that failed is recorded, and the task is not run again', async () => {
    const one = await fleet.add({ afterCrash: 3, task: () => Promise.reject(new Error('its own')) });
    one.job.start();
    await expect(one.fire()).rejects.toThrow('its own');
    expect(fleet.record).toMatchObject({ state: 'failed', endedAt: START });
    await expect(one.fire()).resolves.toEqual({ ran: false });
    await fleet.clock.advance(10 * MINUTE);
    expect(one.runs).toEqual([START]);
  });

  it('is tried to be recorded for a second, and then left', async () => {
    const one = await fleet.add();
    one.fault = (_, text) => {
      if (text?.includes('"ended"')) throw unavailable();
    };
    const run = watch(one.fire());
    await fleet.clock.advance(700);
    await expect(one.locks.isLocked('report')).resolves.toBe(true);
    await fleet.clock.advance(300);
    expect(run.value).toEqual({ ran: true, value: undefined });
    await expect(one.locks.isLocked('report')).resolves.toBe(false);
    expect(fleet.record).toMatchObject({ state: 'running' });
    expect(one.log.at(-1)).toMatch(/Job "report" ended, but this was not recorded/);
  });

  it('after its lock was lost leaves the record of a later run alone', async () => {
    const end = deferred();
    const one = await fleet.add({ task: () => end.promise });
    const other = await fleet.add();
    const run = watch(one.fire());
    await fleet.clock.advance(0);
    await other.locks.admin.forceRelease('report');
    await fleet.clock.advance(MINUTE);
    await other.fire();
    const later = fleet.record;
    end.resolve();
    await fleet.clock.advance(0);
    expect(run.error).toMatchObject({ code: 'LOCK_LOST' });
    expect(fleet.record).toEqual(later);
    expect(later).toMatchObject({ instance: 'i2', tick: START + MINUTE });
  });
});

it('a run that its lock outlives ends at `maxHold`, and others run the next tick', async () => {
  const one = await fleet.add();
  const service = new LockService(one.locks);
  const signals: AbortSignal[] = [];
  const end = deferred();
  const run = watch(
    service.runOnce(
      'import',
      ({ signal }) => {
        signals.push(signal);
        return end.promise;
      },
      { due: new Date(START), maxHold: '10s' },
    ),
  );
  await fleet.clock.advance(10 * SECOND);
  expect(signals[0]?.aborted).toBe(true);
  await expect(service.runOnce('import', () => 2, { due: new Date(START + 1) })).resolves.toEqual({
    ran: true,
    value: 2,
  });
  end.resolve();
  await fleet.clock.advance(0);
  expect(run.error).toMatchObject({ code: 'LOCK_LOST', reason: 'max-hold' });
});

it('treats a damaged record as none, and warns once of each', async () => {
  const one = await fleet.add();
  for (const text of ['{', '1', '{"v":1,"tick":"soon"}', '{"v":0}']) {
    fleet.record = text;
    await one.fire();
    expect(fleet.record).toMatchObject({ tick: fleet.now, state: 'ended' });
    await fleet.clock.advance(MINUTE);
  }
  expect(one.runs).toHaveLength(4);
  const said: unknown = expect.stringMatching(/The record of job "report" on lock provider "main" cannot be read/);
  expect(one.log).toEqual([said, said, said, said]);
});

it.each(['0 3 * * *\n\u001b[31mFAKE', 'x'.repeat(200_000)])(
  'treats a record with a forged schedule as none',
  async (schedule) => {
    const one = await fleet.add();
    await one.fire();
    fleet.record = { ...fleet.record!, schedule };
    await fleet.clock.advance(MINUTE);
    await one.fire();
    expect(one.log).toEqual([expect.stringMatching(/The record of job "report" .*cannot be read/)]);
    expect(one.log.join().length).toBeLessThan(1_000);
  },
);

describe('a tick from the future', () => {
  it.each([MINUTE + 1, 2 * HOUR, Date.UTC(2100, 0, 1) - START])(
    '%d ms ahead of the clock of the server is no record',
    async (ahead) => {
      const one = await fleet.add();
      await one.fire();
      fleet.record = { ...fleet.record!, tick: START + MINUTE + ahead };
      await fleet.clock.advance(MINUTE);
      await expect(one.fire()).resolves.toMatchObject({ ran: true });
      expect(fleet.record).toMatchObject({ tick: START + MINUTE, state: 'ended' });
      expect(one.log).toEqual([expect.stringMatching(/is for \S+Z, \d+ s ahead of the server's clock/)]);
    },
  );

  it('of a number that is no time is damage', async () => {
    const one = await fleet.add();
    await one.fire();
    fleet.record = { ...fleet.record!, tick: 1e300 };
    await fleet.clock.advance(MINUTE);
    await expect(one.fire()).resolves.toMatchObject({ ran: true });
  });

  it('is not written back to a server whose clock was set right', async () => {
    const one = await fleet.add({ catchUp: '1h' });
    one.job.start();
    await fleet.clock.advance(0);
    const { wallTime } = fleet.clock;
    fleet.clock.wallTime = () => wallTime.call(fleet.clock) + 2 * HOUR;
    await one.fire();
    expect(fleet.record).toMatchObject({ tick: START + 2 * HOUR });
    fleet.clock.wallTime = wallTime;
    fleet.record = undefined;
    one.recovered();
    await fleet.clock.advance(MINUTE);
    await one.fire();
    expect(fleet.record).toMatchObject({ tick: START + MINUTE });
  });
});

it('the end of a run that could not be written is written when the backend answers again, so that the run is not begun again', async () => {
  const one = await fleet.add({ afterCrash: 1 });
  one.job.start();
  one.fault = (_, text) => {
    if (text?.includes('"ended"')) throw unavailable();
  };
  const run = watch(one.fire());
  await fleet.clock.advance(SECOND);
  expect(run.value).toMatchObject({ ran: true });
  one.fault = () => undefined;
  one.recovered();
  await fleet.clock.advance(MINUTE);
  expect(one.runs).toEqual([START]);
  expect(fleet.record).toMatchObject({ state: 'ended', attempt: 1 });
});

it('runs nothing where a later version has written the record', async () => {
  const one = await fleet.add();
  fleet.record = '{"v":2,"ticks":[]}';
  await expect(one.fire()).rejects.toThrow(LockConfigError);
  await expect(one.fire()).rejects.toThrow(
    /"report" on lock provider "main" was written by a later version .* update the package/,
  );
  expect(one.commands).toEqual(['read', 'read']);
});

it('warns once where instances have one expression in two zones', async () => {
  const one = await fleet.add({ schedule: every(MINUTE, '* * * * * (Europe/Berlin)') });
  const other = await fleet.add({ schedule: every(MINUTE, '* * * * * (UTC)') });
  const third = await fleet.add({ schedule: every(MINUTE, '*/1 * * * * (UTC)') });
  await one.fire();
  await other.fire();
  await other.fire();
  await third.fire();
  expect(other.log).toEqual([
    expect.stringMatching(/is scheduled here as \* \* \* \* \* \(UTC\), but instance "i1" recorded it as .*Berlin\)/),
  ]);
  expect(third.log).toEqual([]);
});

it('refuses a call before the first tick', async () => {
  const one = await fleet.add({ schedule: { text: '2030', latest: () => undefined, next: () => START * 2 } });
  await expect(one.fire()).rejects.toThrow(/Job "report" was called before its first tick: its schedule is 2030/);
});

it('LockAdmin lists the jobs of all providers, each record once, with the next tick where the job is scheduled', async () => {
  const one = await fleet.add({ schedule: every(HOUR) });
  await fleet.clock.advance(90 * SECOND);
  await one.fire();
  const service = new LockService(one.locks);
  await service.runOnce('import:a', () => 1, { due: new Date(START) });
  fleet.store.records.set('app:damaged', '?');
  fleet.store.records.set('other:report', fleet.store.records.get('app:report')!);
  const listed = [];
  for await (const job of one.locks.admin.jobs()) listed.push(job);
  const run = { provider: 'main', state: 'ended', tick: new Date(START), instance: 'i1', attempt: 1 };
  const times = { startedAt: new Date(START + 90 * SECOND), endedAt: new Date(START + 90 * SECOND) };
  expect(listed).toEqual([
    { key: 'report', ...run, ...times, schedule: 'every 3600000 (UTC)', nextTick: new Date(START + HOUR) },
    { key: 'import:a', ...run, ...times, schedule: null, nextTick: null },
  ]);
});

describe('runOnce() with `due`', () => {
  const due = (offset = 0): RunDueOptions => ({ due: new Date(START + offset) });

  it('runs each due time once in the fleet, however far apart the calls are', async () => {
    const one = new LockService((await fleet.add()).locks);
    const other = new LockService((await fleet.add({ ahead: DAY })).locks);
    await expect(one.runOnce('import', () => 1, due())).resolves.toEqual({ ran: true, value: 1 });
    await fleet.clock.advance(DAY);
    await expect(other.runOnce('import', () => 2, due())).resolves.toEqual({ ran: false });
    await expect(other.runOnce('import', () => 3, due(SECOND))).resolves.toEqual({ ran: true, value: 3 });
    await expect(one.runOnce('import', () => 4, due())).resolves.toEqual({ ran: false });
    await expect(one.runOnce('other', () => 5, due())).resolves.toEqual({ ran: true, value: 5 });
  });

  it('warns once an hour where instances give the time of the call', async () => {
    const one = await fleet.add();
    const other = await fleet.add();
    await new LockService(one.locks).runOnce('import', () => 1, due());
    await new LockService(one.locks).runOnce('import', () => 1, due(20));
    expect(one.log).toEqual([]);
    await new LockService(other.locks).runOnce('import', () => 1, due(40));
    await new LockService(other.locks).runOnce('import', () => 1, due(60));
    expect(other.log).toEqual([
      expect.stringMatching(/job "import" that are 20 ms apart.*Set "due" to the planned time/),
    ]);
    // Ticks that are a second apart may be meant.
    const third = await fleet.add();
    await fleet.clock.advance(MINUTE);
    await new LockService(third.locks).runOnce('import', () => 1, due(2 * SECOND));
    expect(third.log).toEqual([]);
  });

  it('does not run a minute before its time by the server', async () => {
    const instance = await fleet.add();
    const one = new LockService(instance.locks);
    await expect(one.runOnce('import', () => 1, due(MINUTE + 1))).resolves.toEqual({ ran: false });
    expect(instance.skipped).toEqual(['clock']);
    await expect(one.runOnce('import', () => 2, due(MINUTE))).resolves.toEqual({ ran: true, value: 2 });
  });

  it.each<[RegExp, string | string[], unknown]>([
    [/"due" and "minHold" of runOnce\(\) are mutually exclusive/, 'import', { ...due(), minHold: '1m' }],
    [/"due" is 5, but must be a valid Date/, 'import', { due: 5 }],
    [/"due" is a Date, but must be a valid Date/, 'import', { due: new Date(NaN) }],
    [/there is no option "catchUp": remove it/, 'import', { ...due(), catchUp: '1h' }],
    [/"maxHold" is 'soon', but must be a duration/, 'import', { ...due(), maxHold: 'soon' }],
    [/runOnce\(\) with "due" takes one key/, ['a', 'b'], due()],
    [/is missing "minHold".* or pass the time the run was due as \{ due \}/, 'import', { due: undefined }],
  ])('refuses what cannot be: %s', async (message, key, options) => {
    const one = new LockService((await fleet.add()).locks);
    await expect(one.runOnce(key, () => 1, options as RunDueOptions)).rejects.toThrow(message);
  });

  it('refuses a provider that keeps no records', async () => {
    const { locks } = await startManager({ provider: new ScriptedProvider() });
    await expect(new LockService(locks).runOnce('import', () => 1, due())).rejects.toThrow(
      /Lock provider "main" does not store records.*: set "minHold".*, or use a provider that stores records/,
    );
  });
});

it('begins nothing when the application stops', async () => {
  const one = await fleet.add();
  await one.locks.stop();
  await expect(one.fire()).rejects.toThrow('the application is shutting down');
  expect(one.commands).toEqual(['read']);
});
