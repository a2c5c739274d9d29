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

it('reads the record, locks, records the start, runs, records the end, releases', async () => {
  const one = await fleet.add({ task: () => one.commands.push('task') });
  await expect(one.fire()).resolves.toEqual({ ran: true, value: undefined });
  expect(one.commands).toEqual(['read', 'acquire', 'replace running', 'task', 'replace ended', 'release']);
  expect(fleet.record).toEqual({
    ...{ tick: START, state: 'ended', startedAt: START, endedAt: START, instance: 'i1', attempt: 1 },
    ...{ schedule: 'every 60000 (UTC)', run: expect.stringMatching(/^[0-9a-f]{32}$/) as string },
  });
});

it('skips a tick that already started, without locking', async () => {
  const one = await fleet.add();
  const other = await fleet.add();
  await one.fire();
  await expect(other.fire()).resolves.toEqual({ ran: false });
  expect(other.commands).toEqual(['read']);
  expect(other.skipped).toEqual(['done']);
  expect(other.of('skipped')[0]).toMatchObject({ key: 'report', provider: 'main', mode: 'exclusive' });
});

it.each([-MINUTE / 3, 40 * SECOND, -DAY])('runs no tick twice when a clock is off by %d ms', async (ahead) => {
  const one = await fleet.add();
  const other = await fleet.add({ ahead });
  await one.fire();
  // Wait until this clock shows the same tick.
  await fleet.clock.advance(Math.max(0, -ahead) % MINUTE);
  await expect(other.fire()).resolves.toEqual({ ran: false });
  await fleet.clock.advance(MINUTE);
  await one.fire();
  expect([one.runs, other.runs]).toEqual([[START, START + MINUTE], []]);
});

it('assigns a firing slightly before a tick to that tick, and a late firing to the previous tick', async () => {
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
])("refuses a tick that is ahead of the server's clock by more than %s", async (_, period, little, much) => {
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
  // The warning appears at most once an hour.
  await far.fire();
  expect(far.log).toHaveLength(1);
  await fleet.clock.advance(next - little - fleet.now);
  const near = await fleet.add({ schedule, ahead: little });
  await expect(near.fire()).resolves.toMatchObject({ ran: true });
  // Other instances are unaffected.
  expect(near.runs).toEqual([next]);
});

describe('while another process holds the lock', () => {
  it('waits until the other process has recorded the tick, then skips it', async () => {
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

  it('locks as soon as the key is free if the tick has not started', async () => {
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

  it('locks soon after an earlier run ends', async () => {
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

  it('detects on its last poll that an earlier run lost its lock', async () => {
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
  ])('gives up after half a period, capped at 5 s (period %d ms)', async (period, most) => {
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

  it('reports an overlap when an earlier run is still in progress', async () => {
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
    // It tries to lock at the start and at the end, and polls the record in between.
    expect(busy).toBe(2);
    end.resolve();
    await run;
    await fleet.clock.advance(54 * SECOND);
    await other.fire();
    expect(other.runs).toEqual([START + 2 * MINUTE]);
  });
});

it('detects while recording the start that another process ran the tick after the record was read', async () => {
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

it('starts its own tick even if another process ran an earlier one after the record was read', async () => {
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

describe('recording the start', () => {
  it('retries after a lost response and recognizes its own record', async () => {
    const one = await fleet.add();
    let lost = 0;
    const { records } = fleet.store;
    one.fault = (command, text) => {
      if (command !== 'replace' || lost === 3) return;
      lost += 1;
      // The record was written, but the response is lost.
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
    ['returns errors', () => Promise.reject(unavailable())],
    ['gets no response', () => new Promise(() => {})],
  ])('releases the lock and throws if the write %s for 5 s', async (_, answer) => {
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

  it('counts the tick as run (at most once) if the write succeeded but the response never arrived', async () => {
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

it('throws without locking if the record cannot be read for 5 s', async () => {
  const one = await fleet.add();
  one.fault = () => Promise.reject(unavailable());
  const run = watch(one.fire());
  await fleet.clock.advance(5 * SECOND);
  expect(run.error).toBeInstanceOf(LockUnavailableError);
  expect(one.commands).not.toContain('acquire');
});

describe('recording the end', () => {
  it('records a failed run, and does not run the task again', async () => {
    const one = await fleet.add({ afterCrash: 3, task: () => Promise.reject(new Error('its own')) });
    one.job.start();
    await expect(one.fire()).rejects.toThrow('its own');
    expect(fleet.record).toMatchObject({ state: 'failed', endedAt: START });
    await expect(one.fire()).resolves.toEqual({ ran: false });
    await fleet.clock.advance(10 * MINUTE);
    expect(one.runs).toEqual([START]);
  });

  it('retries for one second, then gives up', async () => {
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

  it("leaves a later run's record unchanged when the earlier run lost its lock", async () => {
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

it('ends a run that exceeds `maxHold`, so that other instances run the next tick', async () => {
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

it('treats a damaged record as missing and warns once per record', async () => {
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
  'treats a record with a forged schedule as missing',
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

describe('a record from the future', () => {
  it.each([MINUTE + 1, 2 * HOUR, Date.UTC(2100, 0, 1) - START])(
    "treats a tick %d ms ahead of the server's clock as damaged",
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

  it('treats a number that is not a valid time as damaged', async () => {
    const one = await fleet.add();
    await one.fire();
    fleet.record = { ...fleet.record!, tick: 1e300 };
    await fleet.clock.advance(MINUTE);
    await expect(one.fire()).resolves.toMatchObject({ ran: true });
  });

  it("does not write the record back after the server's clock is corrected", async () => {
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

it("writes a run's end once the backend recovers, so that the run does not start again", async () => {
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

it('runs nothing if a later version wrote the record', async () => {
  const one = await fleet.add();
  fleet.record = '{"v":2,"ticks":[]}';
  await expect(one.fire()).rejects.toThrow(LockConfigError);
  await expect(one.fire()).rejects.toThrow(
    /"report" on lock provider "main" was written by a later version .* update the package/,
  );
  expect(one.commands).toEqual(['read', 'read']);
});

it('warns once when instances schedule one expression in two time zones', async () => {
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

it('LockAdmin lists each job of every provider once, with the next tick if this process schedules the job', async () => {
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

  it('runs each due time once in the fleet, even if the calls are a day apart', async () => {
    const one = new LockService((await fleet.add()).locks);
    const other = new LockService((await fleet.add({ ahead: DAY })).locks);
    await expect(one.runOnce('import', () => 1, due())).resolves.toEqual({ ran: true, value: 1 });
    await fleet.clock.advance(DAY);
    await expect(other.runOnce('import', () => 2, due())).resolves.toEqual({ ran: false });
    await expect(other.runOnce('import', () => 3, due(SECOND))).resolves.toEqual({ ran: true, value: 3 });
    await expect(one.runOnce('import', () => 4, due())).resolves.toEqual({ ran: false });
    await expect(one.runOnce('other', () => 5, due())).resolves.toEqual({ ran: true, value: 5 });
  });

  it('warns when instances pass the time of the call instead of the planned time, at most once an hour', async () => {
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
    // Ticks a second apart may be intended.
    const third = await fleet.add();
    await fleet.clock.advance(MINUTE);
    await new LockService(third.locks).runOnce('import', () => 1, due(2 * SECOND));
    expect(third.log).toEqual([]);
  });

  it("does not run more than a minute early by the server's clock", async () => {
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
  ])('rejects invalid options: %s', async (message, key, options) => {
    const one = new LockService((await fleet.add()).locks);
    await expect(one.runOnce(key, () => 1, options as RunDueOptions)).rejects.toThrow(message);
  });

  it('rejects a provider that does not store records', async () => {
    const { locks } = await startManager({ provider: new ScriptedProvider() });
    await expect(new LockService(locks).runOnce('import', () => 1, due())).rejects.toThrow(
      /Lock provider "main" does not store records.*: set "minHold".*, or use a provider that stores records/,
    );
  });
});

it('starts nothing while the application is stopping', async () => {
  const one = await fleet.add();
  await one.locks.stop();
  await expect(one.fire()).rejects.toThrow('the application is shutting down');
  expect(one.commands).toEqual(['read']);
});
