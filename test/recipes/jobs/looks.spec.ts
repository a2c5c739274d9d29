import type { JobRecord } from '../../../lib/core/job-record.js';
import { type CurrentRun, currentRun } from '../../../lib/recipes/jobs/job.js';
import { looksOf, DAY, every, Fleet, HOUR, MINUTE, SECOND, START, unavailable } from './fleet.js';
import { deferred } from '../../core/manager-rig.js';

const LEASE = 10 * SECOND;

let fleet: Fleet;
beforeEach(() => {
  fleet = new Fleet();
});
afterEach(async () => {
  await fleet.stop();
});

const hourly = every(HOUR);
const record = (changed: Partial<JobRecord> = {}): JobRecord => ({
  ...{ tick: START, run: 'a', state: 'ended', startedAt: START, endedAt: START + SECOND },
  ...{ instance: 'before', attempt: 1, schedule: hourly.text },
  ...changed,
});

/** Starts an instance whose job checks for missed and abandoned runs. */
async function boot(options: Parameters<Fleet['add']>[0] = {}) {
  const instance = await fleet.add({ schedule: hourly, lease: LEASE, ...options });
  instance.job.start();
  await fleet.clock.advance(0);
  return instance;
}

describe('catchUp', () => {
  const catchUp = '6h';

  it('runs once for all missed ticks, in one process', async () => {
    fleet.record = record();
    await fleet.clock.advance(3.5 * HOUR);
    const one = await boot({ catchUp });
    const other = await boot({ catchUp });
    await fleet.clock.advance(SECOND);
    const tick = START + 3 * HOUR;
    expect([one.runs, other.runs]).toEqual([[tick], []]);
    expect([...one.events, ...other.events]).toEqual([
      { name: 'run-missed', event: { key: 'report', provider: 'main', tick: new Date(tick), schedule: hourly.text } },
    ]);
    expect(fleet.record).toMatchObject({ tick, state: 'ended', attempt: 1, instance: 'i1' });
  });

  it("runs a tick that the process reached early once the server's clock reaches it", async () => {
    fleet.record = record();
    await fleet.clock.advance(HOUR - 2 * MINUTE);
    const one = await boot({ catchUp, ahead: 2 * MINUTE });
    await one.fire();
    expect([one.skipped, one.runs]).toEqual([['clock'], []]);
    await fleet.clock.advance(2 * MINUTE + 5 * SECOND);
    expect(one.runs).toEqual([START + HOUR]);
  });

  describe('on an instance that reaches each tick before the server', () => {
    const minutely = every(MINUTE);

    /** Starts an instance 5 s after a tick on the server. */
    const bootAhead = async (ahead: number, last: number, task?: () => unknown) => {
      fleet.record = record({ tick: last, startedAt: last, endedAt: last, schedule: minutely.text });
      await fleet.clock.advance(5 * SECOND);
      return await boot({ catchUp, schedule: minutely, lease: 30 * SECOND, ahead, ...(task && { task }) });
    };
    const advanceTo = (second: number) => fleet.clock.advance(START + second * SECOND - fleet.now);

    it('runs a tick whose check was due after another check', async () => {
      const end = deferred();
      const one = await bootAhead(40 * SECOND, START - MINUTE, () => end.promise);
      await advanceTo(20);
      await one.fire();
      // The check at 60 s finds the run in progress. The next check is due one lease later.
      await advanceTo(70);
      end.resolve();
      await advanceTo(80);
      await one.fire();
      await advanceTo(119);
      expect([one.skipped, one.runs]).toEqual([['clock', 'clock'], [START]]);
      await advanceTo(126);
      expect(one.runs).toEqual([START, START + 2 * MINUTE]);
    });

    it('runs a tick whose check was planned before a recovery', async () => {
      const one = await bootAhead(40 * SECOND, START);
      await advanceTo(20);
      await one.fire();
      one.recovered();
      await advanceTo(59);
      expect([one.skipped, one.runs]).toEqual([['clock'], []]);
      await advanceTo(66);
      expect(one.runs).toEqual([START + MINUTE]);
    });

    it('runs every tick, even if it is several ticks ahead', async () => {
      const one = await bootAhead(210 * SECOND, START);
      for (let minute = 0; minute < 10; minute += 1) {
        await advanceTo(minute * 60 + 30);
        await one.fire();
      }
      await fleet.clock.advance(HOUR);
      const reached = Array.from({ length: 13 }, (_, index) => START + (index + 1) * MINUTE);
      expect([new Set(one.skipped), one.runs]).toEqual([new Set(['clock']), reached]);
      expect(one.clock.pendingTimers).toBe(0);
    });
  });

  it('reports the missed run before the task runs, under the lock of that run', async () => {
    fleet.record = record();
    await fleet.clock.advance(1.5 * HOUR);
    let told: number | undefined;
    const one = await boot({ catchUp, task: () => (told = fleet.instances[0]!.of('run-missed').length) });
    await fleet.clock.advance(0);
    expect(told).toBe(1);
    expect(one.commands).toEqual(['read', 'read', 'acquire', 'replace running', 'replace ended', 'release']);
  });

  it('reports a tick that is too old once per process, and does not run it', async () => {
    fleet.record = record();
    const daily = every(DAY, hourly.text);
    await fleet.clock.advance(DAY + 6 * HOUR + SECOND);
    const one = await boot({ catchUp, schedule: daily });
    one.recovered();
    await fleet.clock.advance(MINUTE);
    expect(one.of('run-missed').map(({ tick }) => tick)).toEqual([new Date(START + DAY)]);
    expect(one.runs).toEqual([]);
    const younger = await boot({ catchUp: '7h', schedule: daily });
    await fleet.clock.advance(0);
    expect(younger.runs).toEqual([START + DAY]);
  });

  it('does not count a tick that was due during the last run as missed', async () => {
    fleet.record = record({ endedAt: START + 1.2 * HOUR });
    await fleet.clock.advance(1.5 * HOUR);
    const one = await boot({ catchUp });
    await fleet.clock.advance(SECOND);
    expect([one.runs, one.events]).toEqual([[], []]);
    await fleet.clock.advance(0.6 * HOUR);
    const other = await boot({ catchUp });
    expect(other.runs).toEqual([START + 2 * HOUR]);
  });

  it('reports nothing missed during a run, and checks again when the run may have ended', async () => {
    const end = deferred();
    const long = await fleet.add({ schedule: hourly, task: () => end.promise, lease: LEASE });
    const run = long.fire();
    await fleet.clock.advance(1.5 * HOUR);
    const one = await boot({ catchUp });
    await fleet.clock.advance(10 * MINUTE);
    expect([one.runs, one.events]).toEqual([[], []]);
    end.resolve();
    await run;
    await fleet.clock.advance(HOUR);
    // The 01:00 tick was due during the run. The 02:00 tick wasn't.
    await fleet.clock.advance(0);
    expect(one.runs).toEqual([]);
    expect(fleet.record).toMatchObject({ tick: START, state: 'ended' });
  });

  it('counts missed ticks from the start of a run that never ended', async () => {
    fleet.record = record({ state: 'running', endedAt: null });
    await fleet.clock.advance(1.5 * HOUR);
    const one = await boot({ catchUp });
    await fleet.clock.advance(0);
    expect(one.runs).toEqual([START + HOUR]);
    expect(one.events.map(({ name }) => name)).toEqual(['run-abandoned', 'run-missed']);
    expect(one.of('run-abandoned')[0]).toMatchObject({ tick: new Date(START), instance: 'before', again: false });
  });

  it('waits for other instances that just fired', async () => {
    fleet.record = record();
    await fleet.clock.advance(HOUR - SECOND);
    const fired = await fleet.add({ schedule: hourly });
    await fleet.clock.advance(SECOND + 10);
    const one = await boot({ catchUp });
    await fleet.clock.advance(4 * SECOND);
    expect(one.events).toEqual([]);
    await fired.fire();
    await fleet.clock.advance(MINUTE);
    expect([one.runs, one.events, fired.runs]).toEqual([[], [], [START + HOUR]]);
  });

  it('runs a recent tick that no other instance ran', async () => {
    fleet.record = record();
    await fleet.clock.advance(HOUR + 10);
    const one = await boot({ catchUp });
    await fleet.clock.advance(5 * SECOND);
    expect(one.runs).toEqual([START + HOUR]);
  });

  it('records a baseline on the first deployment or after a rename, and counts missed ticks from there', async () => {
    await fleet.clock.advance(1.5 * HOUR);
    const one = await boot({ catchUp });
    expect([one.runs, one.events]).toEqual([[], []]);
    expect(fleet.record).toMatchObject({
      ...{ tick: START + HOUR, state: 'baseline', attempt: 0, instance: 'i1', schedule: hourly.text },
      ...{ startedAt: START + 1.5 * HOUR, endedAt: START + 1.5 * HOUR },
    });
    one.kill();
    await fleet.clock.advance(HOUR);
    const other = await boot({ catchUp });
    expect(other.runs).toEqual([START + 2 * HOUR]);
  });

  it('records no baseline for a tick that an instance may be starting', async () => {
    await fleet.clock.advance(HOUR);
    const fired = await fleet.add({ schedule: hourly });
    const firing = deferred();
    // The first instance has read the record, and now reaches the lock slowly.
    fired.fault = (command) => (command === 'acquire' ? firing.promise : undefined);
    const run = fired.fire();
    const one = await boot({ catchUp });
    firing.resolve();
    await fleet.clock.advance(MINUTE);
    await run;
    expect([fired.runs, fired.skipped, one.runs]).toEqual([[START + HOUR], [], []]);
  });

  it('counts missed ticks from the deployment if no tick has been due yet', async () => {
    const date = START + HOUR;
    const once = { text: 'date', latest: (at: number) => (at >= date ? date : undefined), next: () => undefined };
    const one = await boot({ catchUp, schedule: once });
    expect(fleet.record).toMatchObject({ tick: START, state: 'baseline' });
    one.kill();
    await fleet.clock.advance(2 * HOUR);
    const other = await boot({ catchUp, schedule: once });
    expect(other.runs).toEqual([date]);
  });

  it('runs nothing twice when a rolling deployment moves 03:00 to 05:00 or back', async () => {
    const at = (hour: number) => {
      const shift = hour * HOUR;
      const latest = (time: number) => Math.floor((time - shift) / DAY) * DAY + shift;
      return { text: `0 ${hour} * * * (UTC)`, latest, next: (tick: number) => latest(tick) + DAY };
    };
    const started: string[] = [];
    const add = (hour: number) =>
      boot({ catchUp: '20h', schedule: at(hour), task: (tick) => void started.push(new Date(tick).toISOString()) });
    const old = await add(3);
    await fleet.clock.advance(3 * HOUR);
    await old.fire();
    await fleet.clock.advance(HOUR);
    // At 04:00, each instance checks after the other.
    const next = await add(5);
    old.recovered();
    await fleet.clock.advance(MINUTE);
    next.recovered();
    await fleet.clock.advance(MINUTE);
    expect(started).toEqual(['2026-06-01T03:00:00.000Z']);
    await fleet.clock.advance(START + 5 * HOUR - fleet.now);
    await next.fire();
    old.kill();
    // Move the schedule back at 06:00.
    await fleet.clock.advance(HOUR);
    await add(3);
    await fleet.clock.advance(MINUTE);
    // An instance whose clock is behind fires now.
    await next.fire();
    expect(started).toEqual(['2026-06-01T03:00:00.000Z', '2026-06-01T05:00:00.000Z']);
  });

  it('does not replace a run in progress with a baseline', async () => {
    const end = deferred();
    const long = await fleet.add({ schedule: every(HOUR, 'other'), task: () => end.promise, lease: LEASE });
    const run = long.fire();
    await fleet.clock.advance(MINUTE);
    await boot({ catchUp });
    await fleet.clock.advance(MINUTE);
    expect(fleet.record).toMatchObject({ state: 'running', instance: 'i1' });
    end.resolve();
    await run;
    await fleet.clock.advance(MINUTE);
    expect(fleet.record).toMatchObject({ state: 'baseline', schedule: hourly.text });
  });

  it('runs a tick that was missed during an outage', async () => {
    fleet.record = record();
    const one = await boot({ catchUp });
    one.fault = () => Promise.reject(unavailable());
    await fleet.clock.advance(HOUR);
    const fired = expect(one.fire()).rejects.toThrow('does not respond');
    await fleet.clock.advance(10 * SECOND);
    await fired;
    one.fault = () => undefined;
    await fleet.clock.advance(LEASE * 1.5);
    expect(one.runs).toEqual([START + HOUR]);
  });

  it('runs a tick whose process crashed before recording the start', async () => {
    fleet.record = record();
    const one = await boot({ catchUp });
    const other = await boot({});
    await fleet.clock.advance(HOUR);
    other.fault = (command) => (command === 'replace' ? other.kill() : undefined);
    void other.fire();
    await fleet.clock.advance(0);
    void one.fire();
    await fleet.clock.advance(6 * SECOND);
    expect(one.skipped).toEqual(['busy']);
    await fleet.clock.advance(LEASE * 2);
    expect(one.runs).toEqual([START + HOUR]);
  });

  it("follows the server's clock", async () => {
    fleet.record = record();
    await fleet.clock.advance(0.5 * HOUR);
    const one = await boot({ catchUp, ahead: 3 * HOUR });
    await fleet.clock.advance(MINUTE);
    expect([one.runs, one.events]).toEqual([[], []]);
    one.kill();
    await fleet.clock.advance(3 * HOUR);
    const other = await boot({ catchUp, ahead: -3 * HOUR });
    expect(other.runs).toEqual([START + 3 * HOUR]);
  });
});

it('neither checks nor sends commands until the scheduler fires the job', async () => {
  fleet.record = record();
  const one = await fleet.add({ schedule: hourly, lease: LEASE, catchUp: '6h', afterCrash: 1 });
  let isFired = false;
  await fleet.clock.advance(HOUR + MINUTE);
  one.job.start(() => isFired);
  await fleet.clock.advance(MINUTE);
  expect(one.commands).toEqual([]);
  one.recovered();
  await fleet.clock.advance(MINUTE);
  expect(one.runs).toEqual([]);
  isFired = true;
  await fleet.clock.advance(MINUTE);
  expect(one.runs).toEqual([START + HOUR]);
});

describe('afterCrash', () => {
  const crashing = async (afterCrash?: number) => {
    const one = await boot({ afterCrash, task: () => new Promise(() => {}) });
    void one.fire();
    await fleet.clock.advance(SECOND);
    one.kill();
    return one;
  };

  it('restarts an abandoned run at boot, at most `afterCrash` times', async () => {
    await crashing();
    const begun: number[] = [];
    for (let restart = 0; restart < 4; restart += 1) {
      await fleet.clock.advance(2 * LEASE);
      const next = await boot({ afterCrash: 2, task: () => new Promise(() => {}) });
      begun.push(next.runs.length);
      const isLast = restart >= 2;
      expect(next.of('run-abandoned')).toEqual(
        restart === 3
          ? []
          : [expect.objectContaining({ tick: new Date(START), instance: `i${restart + 1}`, again: !isLast })],
      );
      expect(fleet.record).toMatchObject({ attempt: Math.min(restart + 2, 3), state: isLast ? 'failed' : 'running' });
      next.kill();
    }
    expect(begun).toEqual([1, 1, 0, 0]);
  });

  it("reports the attempt in the log and in the task's context", async () => {
    const seen: (CurrentRun | undefined)[] = [];
    const one = await boot({ afterCrash: 1, task: () => (seen.push(currentRun()), new Promise(() => {})) });
    void one.fire();
    await fleet.clock.advance(SECOND);
    one.kill();
    await fleet.clock.advance(2 * LEASE);
    const other = await boot({ afterCrash: 1, task: () => seen.push(currentRun()) });
    const run = { key: 'report', tick: new Date(START) };
    expect(seen).toEqual([
      { ...run, attempt: 1 },
      { ...run, attempt: 2 },
    ]);
    expect(currentRun()).toBeUndefined();
    expect(one.log).toEqual([]);
    expect(other.log).toEqual([
      'Job "report" runs again for 2026-06-01T00:00:00.000Z, attempt 2: instance "i1" started it at 2026-06-01T00:00:00.000Z but did not finish. Find out why that instance stopped or lost its lock.',
    ]);
  });

  it('lets an instance that skipped the run restart it after the lease', async () => {
    const one = await boot({ afterCrash: 1, task: () => new Promise(() => {}) });
    const other = await boot({ afterCrash: 1 });
    void one.fire();
    await fleet.clock.advance(SECOND);
    await other.fire();
    expect(other.skipped).toEqual(['done']);
    await fleet.clock.advance(3 * LEASE);
    // The run is still in progress and its lease was renewed.
    expect(other.runs).toEqual([]);
    one.kill();
    await fleet.clock.advance(3 * LEASE);
    expect(other.runs).toEqual([START]);
    expect(other.of('run-abandoned')).toMatchObject([{ instance: 'i1', again: true }]);
    expect(fleet.record).toMatchObject({ state: 'ended', attempt: 2, instance: 'i2' });
    await fleet.clock.advance(10 * LEASE);
    expect(other.runs).toEqual([START]);
    expect(other.clock.pendingTimers).toBe(0);
  });

  it('restarts nothing and sets no timer when `afterCrash` is 0', async () => {
    await crashing();
    await fleet.clock.advance(2 * LEASE);
    const one = await boot();
    await one.fire();
    await fleet.clock.advance(0);
    expect(one.clock.pendingTimers).toBe(0);
    await fleet.clock.advance(MINUTE);
    expect([one.runs, one.commands]).toEqual([[], ['read']]);
  });

  it('does not restart a restarted run that fails', async () => {
    await crashing();
    await fleet.clock.advance(2 * LEASE);
    const one = await boot({ afterCrash: 5, task: () => Promise.reject(new Error('its own')) });
    await fleet.clock.advance(HOUR / 2);
    expect(one.runs).toEqual([START]);
    expect(one.log).toEqual([
      expect.stringContaining('runs again'),
      'Job "report" failed while making up for a missed or abandoned run: Error: its own',
    ]);
    expect(fleet.record).toMatchObject({ state: 'failed', attempt: 2 });
  });

  it('restarts the run once when two processes find it', async () => {
    await crashing();
    await fleet.clock.advance(2 * LEASE);
    const both = await Promise.all([boot({ afterCrash: 1 }), boot({ afterCrash: 1 })]);
    await fleet.clock.advance(10 * LEASE);
    expect(both.flatMap(({ runs }) => runs)).toEqual([START]);
    expect(both.flatMap((each) => each.of('run-abandoned'))).toHaveLength(1);
  });

  it('lets the next tick replace the abandoned run', async () => {
    await crashing();
    await fleet.clock.advance(HOUR);
    const one = await fleet.add({ schedule: hourly });
    await one.fire();
    expect(one.of('run-abandoned')).toMatchObject([{ tick: new Date(START), again: false }]);
    expect(fleet.record).toMatchObject({ tick: START + HOUR, attempt: 1 });
  });
});

describe('after the backend recovers', () => {
  it('restores a lost record before any instance checks for missed runs', async () => {
    const one = await boot({ catchUp: '6h' });
    const other = await boot({ catchUp: '6h' });
    await fleet.clock.advance(HOUR);
    await one.fire();
    await other.fire();
    const known = fleet.record;
    fleet.record = record({ endedAt: START });
    // The instance that doesn't know about the run checks first.
    const third = await boot({ catchUp: '6h' });
    third.commands.length = 0;
    for (const each of [third, one, other]) each.recovered();
    await fleet.clock.advance(4_999);
    expect(third.commands).toEqual(['read']);
    expect(fleet.record).toEqual(known);
    await fleet.clock.advance(MINUTE);
    expect([one.runs, other.runs, third.runs]).toEqual([[START + HOUR], [], []]);
    expect([...one.events, ...third.events]).toEqual([]);
  });

  it('does not restart a run that ended, even on an instance that only saw it in progress', async () => {
    const end = deferred();
    const one = await boot({ afterCrash: 1, task: () => end.promise });
    const other = await boot({ afterCrash: 1 });
    await fleet.clock.advance(HOUR);
    const run = one.fire();
    await fleet.clock.advance(0);
    const second = other.fire();
    await fleet.clock.advance(MINUTE);
    await second;
    end.resolve();
    await run;
    fleet.record = undefined;
    other.recovered();
    await fleet.clock.advance(0);
    expect(fleet.record).toMatchObject({ state: 'running', instance: 'i1' });
    one.recovered();
    await fleet.clock.advance(MINUTE);
    expect([one.runs, other.runs]).toEqual([[START + HOUR], []]);
    expect(fleet.record).toMatchObject({ state: 'ended' });
  });

  it('does not overwrite a newer record with an older one', async () => {
    const one = await boot({ catchUp: '6h' });
    await fleet.clock.advance(HOUR);
    fleet.record = record({ tick: START + HOUR });
    one.recovered();
    await fleet.clock.advance(MINUTE);
    expect(fleet.record).toMatchObject({ tick: START + HOUR, run: 'a' });
  });

  it('checks after 5 s, even if an earlier check was planned', async () => {
    const one = await boot({ catchUp: '6h' });
    fleet.record = record();
    await fleet.clock.advance(HOUR + 3 * SECOND);
    one.recovered();
    await fleet.clock.advance(4_900);
    expect(one.runs).toEqual([]);
    await fleet.clock.advance(200);
    expect(one.runs).toEqual([START + HOUR]);
  });
});

describe('during shutdown', () => {
  it('stops checking and leaves no timers', async () => {
    fleet.record = record();
    const one = await boot({ catchUp: '6h', afterCrash: 1 });
    await fleet.clock.advance(HOUR + 10);
    one.recovered();
    expect(one.clock.pendingTimers).toBeGreaterThan(0);
    const stopped = one.locks.stop();
    await fleet.clock.advance(0);
    await stopped;
    expect(one.clock.pendingTimers).toBe(0);
    one.recovered();
    await fleet.clock.advance(HOUR);
    expect([one.runs, one.log, one.clock.pendingTimers]).toEqual([[], [], 0]);
  });

  it('starts nothing from a check in progress', async () => {
    fleet.record = record();
    await fleet.clock.advance(1.5 * HOUR);
    const answer = deferred();
    const one = await fleet.add({ schedule: hourly, catchUp: '6h' });
    one.fault = (command) => (command === 'read' ? answer.promise : undefined);
    one.job.start();
    await fleet.clock.advance(0);
    const stopped = one.locks.stop();
    answer.resolve();
    await fleet.clock.advance(10 * SECOND);
    await stopped;
    expect([one.runs, one.log]).toEqual([[], []]);
  });

  it('waits for a catch-up run', async () => {
    fleet.record = record();
    await fleet.clock.advance(1.5 * HOUR);
    const end = deferred();
    const one = await boot({ catchUp: '6h', task: () => end.promise });
    let isStopped = false;
    const stopped = one.locks.stop().then(() => (isStopped = true));
    await fleet.clock.advance(SECOND);
    expect(isStopped).toBe(false);
    end.resolve();
    await fleet.clock.advance(SECOND);
    await stopped;
    expect(fleet.record).toMatchObject({ tick: START + HOUR, state: 'ended' });
  });
});

it('logs the failure of a missed run, even if the error has no text', async () => {
  fleet.record = record();
  await fleet.clock.advance(1.5 * HOUR);
  const rejections: unknown[] = [];
  const note = (error: unknown) => rejections.push(error);
  process.on('unhandledRejection', note);
  try {
    const one = await boot({ catchUp: '6h', task: () => Promise.reject(Object.create(null) as Error) });
    await fleet.clock.advance(SECOND);
    expect(one.log).toEqual([
      'Job "report" failed while making up for a missed or abandoned run: an unprintable value',
    ]);
    expect(fleet.record).toMatchObject({ tick: START + HOUR, state: 'failed' });
    expect(rejections).toEqual([]);
  } finally {
    process.off('unhandledRejection', note);
  }
});

it('releases the lock if the method does not run its task for a missed run', async () => {
  fleet.record = record();
  await fleet.clock.advance(1.5 * HOUR);
  const one = await fleet.add({ schedule: hourly, catchUp: '6h' });
  one.job.attach(() => Promise.resolve());
  one.job.start();
  await fleet.clock.advance(SECOND);
  await expect(one.locks.isLocked('report')).resolves.toBe(false);
  expect(fleet.record).toMatchObject({ tick: START + HOUR, state: 'failed' });
  expect(one.log).toEqual([
    expect.stringMatching(/^Job "report" was called for a missed or abandoned run, but did not run its task/),
  ]);
});

it('logs why it cannot check, and keeps going', async () => {
  const one = await boot({ catchUp: '6h' });
  fleet.record = '{"v":2}';
  one.recovered();
  await fleet.clock.advance(MINUTE);
  expect(one.log).toContainEqual(expect.stringMatching(/cannot check for missed and abandoned runs.* later version/));
});

it.each<[RegExp, Parameters<typeof looksOf>[0]]>([
  [/@RunOnce: "catchUp" is '10ms', but must be a duration of 1000 ms to 24.8 days/, { catchUp: '10ms' }],
  [/@RunOnce: "catchUp" is '25d'/, { catchUp: '25d' }],
  [/@RunOnce: "afterCrash" is -1, but must be a whole number from 0 to 100/, { afterCrash: -1 }],
  [/@RunOnce: "afterCrash" is 1.5/, { afterCrash: 1.5 }],
  [/@RunOnce: "afterCrash" is 101/, { afterCrash: 101 }],
  [/@RunOnce: "afterCrash" is '2'/, { afterCrash: '2' as never }],
])('rejects invalid options: %s', (message, options) => {
  expect(() => looksOf(options)).toThrow(message);
});
