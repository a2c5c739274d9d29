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

/** An instance that schedules the job, and the job as the channel shows it. */
async function scheduled(options: Parameters<Fleet['add']>[0] = {}) {
  const instance = await fleet.add({ schedule: hourly, ...options });
  const before = new Set(jobs);
  instance.job.start();
  await fleet.clock.advance(0);
  const [job, ...others] = [...jobs].filter((each) => !before.has(each));
  expect(others).toEqual([]);
  return { instance, job: job! };
}

it('a job is overdue from the first tick after the boot that nobody has begun', async () => {
  const { job } = await scheduled();
  expect(job).toMatchObject({ key: 'report', provider: 'main', mode: 'exclusive' });
  expect(job.overdue()).toBe(0);
  await fleet.clock.advance(HOUR + 5 * MINUTE);
  expect(job.overdue()).toBe(5 * MINUTE);
});

it('is not overdue after a run, also one of another instance, which a firing finds', async () => {
  const one = await scheduled();
  const other = await scheduled();
  await fleet.clock.advance(HOUR);
  await one.instance.fire();
  await fleet.clock.advance(MINUTE);
  expect([one.job.overdue(), other.job.overdue()]).toEqual([0, MINUTE]);
  await other.instance.fire();
  expect(other.job.overdue()).toBe(0);
  // A firing shows the same object again.
  expect(jobs.size).toBe(2);
});

it('is overdue while the backend does not answer, from the first of the ticks', async () => {
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

it('is overdue while a run takes longer than the period; its end makes up for the ticks that were due meanwhile', async () => {
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

it('counts by the clock of the server, and not from the record of another schedule', async () => {
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

it('is unknown once the application has stopped, and a process that does not schedule it shows nothing', async () => {
  const { instance, job } = await scheduled();
  await instance.locks.stop();
  expect(job.overdue()).toBeUndefined();
  const idle = await fleet.add({ schedule: hourly });
  await idle.fire();
  expect(jobs.size).toBe(1);
});
