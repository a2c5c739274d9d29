import { AsyncLocalStorage } from 'node:async_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { claimOf, load } from './lock-manager.mjs';

/** Half a period is longer than a lease, so a firing waits until the lock of a dead process is free. */
const PERIOD = 3_000;
const AFTER_CRASH = 2;
/** Faults that request keys that aren't jobs. */
const OF_LOCKS = new Set([
  ...['waiters killed', 'many waiting keys', 'connections dropped', 'statements cancelled'],
  ...['servers frozen at a deadline', 'server paused in a handoff'],
]);

/**
 * A subject whose workers are instances of an application with three jobs, each due every 3 s. Each section is one run,
 * in a process that fired or that makes up for a missed or abandoned run. The judge detects two concurrent runs like
 * two holders, and ticks that were started twice or not at all.
 *
 * @param forgetful the faults by which the server loses records
 */
export function jobsOf(subject, forgetful = []) {
  const { faults, recovery, lifetime, allows } = subject;
  const lossOf = (fault) => [fault, [...(allows[fault] ?? []), 'twice']];
  return {
    ...subject,
    title: `jobs on ${subject.title}`,
    faults: faults.filter((name) => !OF_LOCKS.has(name)),
    fair: false,
    allows: { ...allows, ...Object.fromEntries(forgetful.map(lossOf)) },
    /** A firing, a run of two periods, and another firing that waits for that run to end. */
    recovery: recovery + 5 * PERIOD,
    longSections: { share: 0.04, length: 2 * PERIOD },
    calm: [1_000, 4_000],
    oneKeyForEachClient: true,
    jobs: { period: PERIOD, afterCrash: AFTER_CRASH, outageOver: (subject.reconnect ?? 2_000) + lifetime },
    connect: async (settings) => firing(settings, await subject.connect(settings)),
  };
}

async function firing({ library, keys }, { manager, options, endOf, ...locks }) {
  const { runGuarded } = await load(library, 'core/hold/guarded-task.js');
  const { ScheduledJob } = await load(library, 'recipes/jobs/scheduled-job.js');
  const latest = (time) => Math.floor(time / PERIOD) * PERIOD;
  const schedule = { text: 'every 3 s (UTC)', latest, next: (tick) => latest(tick) + PERIOD };
  const plan = manager.plan({ ...options, wait: 0 });
  const looks = { catchUp: 60_000, afterCrash: AFTER_CRASH };
  const pending = new Set();
  manager.events.on('release-pending', ({ key }) => pending.add(key));
  /** Set inside what a job calls for a run that has already started. */
  const called = new AsyncLocalStorage();
  const newJob = (key) => new ScheduledJob(manager, key, plan, () => schedule, looks);
  const jobs = new Map(keys.map((key) => [key, newJob(key)]));

  return {
    ...locks,
    shared: false,
    limited: undefined,
    wait: PERIOD,
    /** From now on, the jobs check for missed and abandoned runs, and call `section` for them. */
    schedule(section) {
      for (const [key, job] of jobs) {
        job.attach(() => called.run(true, () => section({ key, mode: 'exclusive' })));
        job.start();
      }
    },
    /** Fires with the next tick on this process's clock, as a scheduler does. */
    async acquire(key, { signal }) {
      const now = Date.now();
      if (!called.getStore()) await sleep(schedule.next(now) - now, undefined, { signal }).catch(rethrowReason(signal));
      const run = await jobs.get(key).begin();
      if (!run) throw Object.assign(new Error('The tick has already started.'), { code: 'LOCK_BUSY' });
      const { lock, record } = run;
      const grantedAt = performance.now();
      let isSignaled = lock.signal.aborted;
      lock.signal.addEventListener('abort', () => {
        isSignaled = true;
      });
      let end;
      const over = new Promise((resolve) => {
        end = resolve;
      });
      pending.delete(key);
      const performed = runGuarded(
        lock,
        run.recorded(() => over),
        plan.settings.onLost,
      ).then(
        () => (pending.has(key) ? 'pending' : 'released'),
        (error) => {
          if (error.code === 'LOCK_LOST') return 'lost';
          throw error;
        },
      );
      // The section awaits it later.
      performed.catch(() => undefined);
      return {
        tokenOf: () => lock.fencingToken,
        isSignaled: () => isSignaled,
        claim: () => ({
          ...claimOf(lock, endOf(key, grantedAt)),
          tick: record.tick,
          attempt: record.attempt,
        }),
        release() {
          end();
          return performed;
        },
      };
    },
  };
}

/** An aborted sleep throws its own error; a canceled call throws its signal's reason. */
function rethrowReason(signal) {
  return (error) => {
    signal?.throwIfAborted();
    throw error;
  };
}
