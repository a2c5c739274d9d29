import type { LockProvider } from '../../../lib/api/lock-provider.js';
import { runGuarded } from '../../../lib/core/hold/guarded-task.js';
import { LockManager } from '../../../lib/core/lock-manager.js';
import type { Schedule } from '../../../lib/recipes/jobs/schedule.js';
import { looksOf } from './looks-of.js';
import { ScheduledJob } from '../../../lib/recipes/jobs/scheduled-job.js';
import { until } from '../../until.js';
import { DAY, every, SECOND } from './fleet.js';

/** Instances of the same provider, first with one schedule, then with another: nothing runs for what the first has run. */
export async function deployOtherSchedule(providerOf: () => Promise<LockProvider>): Promise<void> {
  const old = await instance(await providerOf(), every(SECOND, 'each second'));
  expect(await old.run()).toBe(true);
  const [run] = await old.records();
  await old.locks.stop();

  const next = await instance(await providerOf(), every(DAY, 'each day'));
  next.job.start();
  await until(async () => (await next.records())[0]?.state === 'baseline', 'a baseline is recorded', 60_000);
  expect(await next.records()).toMatchObject([{ schedule: 'each day', attempt: 1, tick: run?.tick }]);
  expect(await next.run()).toBe(false);
  expect(next.runs + old.runs).toBe(1);
  await next.locks.stop();
}

async function instance(provider: LockProvider, schedule: Schedule) {
  const locks = new LockManager({ providers: { main: provider }, namespace: 'deployed' });
  await locks.start();
  const plan = locks.plan({ wait: 0 });
  const looks = looksOf({ catchUp: '24d', afterCrash: 1 });
  const job = new ScheduledJob(locks, 'report', plan, () => schedule, looks);
  const one = {
    locks,
    job,
    runs: 0,
    run: async (): Promise<boolean> => {
      const begun = await job.begin();
      if (!begun) return false;
      const task = begun.recorded(() => (one.runs += 1));
      await runGuarded(begun.lock, task, plan.settings.onLost);
      return true;
    },
    records: async () => {
      const records = [];
      for await (const record of locks.admin.jobs()) records.push(record);
      return records;
    },
  };
  job.attach(one.run);
  return one;
}
