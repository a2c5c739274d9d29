import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { JobTrace } from '../../../lib/api/lock-traces.js';
import { deferred } from '../../core/manager-rig.js';
import { every, Fleet, HOUR, MINUTE, SECOND, START, unavailable } from './fleet.js';

const CHANNEL = 'nestjs-distributed-lock:job';
const hourly = every(HOUR);

let fleet: Fleet;
const jobs = new Set<JobTrace>();
const onJob = (job: unknown) => void jobs.add(job as JobTrace);
beforeEach(() => {
  fleet = new Fleet();
  subscribe(CHANNEL, onJob);
});
afterEach(async () => {
  unsubscribe(CHANNEL, onJob);
  jobs.clear();
  await fleet.stop();
});

/** Returns an instance that schedules the job, and the job as published on the diagnostics channel. */
async function scheduled(options: Parameters<Fleet['add']>[0] = {}) {
  const instance = await fleet.add({ schedule: hourly, ...options });
  const before = new Set(jobs);
  instance.job.start();
  await fleet.clock.advance(0);
  const [job, ...others] = [...jobs].filter((each) => !before.has(each));
  expect(others).toEqual([]);
  return { instance, job: job! };
}

it('reports a job as overdue since the first tick after boot that no instance started', async () => {
  const { job } = await scheduled();
  expect(job).toMatchObject({ key: 'report', provider: 'main', mode: 'exclusive' });
  expect(job.overdue()).toBe(0);
  await fleet.clock.advance(HOUR + 5 * MINUTE);
  expect(job.overdue()).toBe(5 * MINUTE);
});

it("reports 0 after a run, including another instance's run once a firing reads its record", async () => {
  const one = await scheduled();
  const other = await scheduled();
  await fleet.clock.advance(HOUR);
  await one.instance.fire();
  await fleet.clock.advance(MINUTE);
  expect([one.job.overdue(), other.job.overdue()]).toEqual([0, MINUTE]);
  await other.instance.fire();
  expect(other.job.overdue()).toBe(0);
  // A firing publishes the same object again.
  expect(jobs.size).toBe(2);
});

it('counts from the first tick missed while the backend is unavailable', async () => {
  const { instance, job } = await scheduled();
  await fleet.clock.advance(HOUR);
  await instance.fire();
  instance.fault = () => {
    throw unavailable();
  };
  await fleet.clock.advance(HOUR);
  const run = instance.fire().catch(() => undefined);
  await fleet.clock.advance(HOUR + MINUTE);
  await run;
  expect(job.overdue()).toBe(HOUR + MINUTE);
});

it('is overdue while a run exceeds the period, and no longer overdue when the run ends', async () => {
  const end = deferred();
  const { instance, job } = await scheduled({ task: () => end.promise });
  await fleet.clock.advance(HOUR);
  const run = instance.fire();
  await fleet.clock.advance(2.5 * HOUR);
  expect(job.overdue()).toBe(1.5 * HOUR);
  end.resolve();
  await run;
  expect(job.overdue()).toBe(0);
});

it("uses the server's clock, and ignores a record of another schedule", async () => {
  fleet.record = {
    ...{ tick: START - 10 * HOUR, run: 'a', state: 'running', startedAt: START - 10 * HOUR, endedAt: null },
    ...{ instance: 'before', attempt: 2, schedule: 'another' },
  };
  const { job } = await scheduled({ afterCrash: 1, ahead: -2 * HOUR });
  await fleet.clock.advance(SECOND);
  expect(job.overdue()).toBe(0);
  await fleet.clock.advance(HOUR);
  expect(job.overdue()).toBe(SECOND);
});

it('is undefined after the application stops, and not published by a process that does not schedule the job', async () => {
  const { instance, job } = await scheduled();
  await instance.locks.stop();
  expect(job.overdue()).toBeUndefined();
  const idle = await fleet.add({ schedule: hourly });
  await idle.fire();
  expect(jobs.size).toBe(1);
});
