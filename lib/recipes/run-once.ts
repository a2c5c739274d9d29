import type { Duration } from '../api/duration.js';
import { LockConfigError, LockKeyError } from '../api/errors.js';
import { isBusy } from '../api/is-busy.js';
import type { LockOptions } from '../api/lock-options.js';
import type { Lock } from '../api/lock.js';
import { runGuarded } from '../core/hold/guarded-task.js';
import { type LockPlan, publishSkipped } from '../core/plan/lock-plan.js';
import { OF_LOCK } from '../core/plan/lock-settings.js';
import type { GrantedLock } from '../core/hold/granted-lock.js';
import type { LockManager } from '../core/lock-manager.js';
import { assertTask } from '../core/toolkit/arguments.js';
import { count, duration, option, type OptionTable, read } from '../core/toolkit/options.js';
import { type LockKey, normalizeKeys } from '../key/lock-key.js';
import { Job } from './jobs/job.js';
import type { MissingRunOptions } from './jobs/missing-runs.js';

/** How often a job may run. */
export interface RunOnceOptions {
  /**
   * The shortest time between two runs, in ms. Processes start a job at slightly different times. The key stays locked
   * for this time, so an instance with a slow clock skips the run. At most 24.8 days. With 0, a job can run twice. Row,
   * advisory, and ZooKeeper locks support only 0.
   */
  minHold: Duration;
  /**
   * The longest time that a run may take, in ms. Then its signal aborts, and another run may start. At most 24.8 days,
   * or `Infinity`. Default: `maxHold` of the module's `defaults`, or `Infinity`.
   */
  maxHold?: Duration | undefined;
  /** Name of the provider. Default: the module's default provider. */
  provider?: string | undefined;
}

/** How a `@Cron` method runs. Only one process starts each tick (a time at which the method is due). */
export interface RunTicksOptions {
  /**
   * The maximum age, in ms, at which a tick that no process has started is made up for. 1 s to 24.8 days. Default:
   * missed ticks are not made up for.
   */
  catchUp?: Duration | undefined;
  /**
   * How many times a run is restarted after its process crashes or loses its lock: a whole number from 0 to 100.
   * Default
   * 0. A failed task is not repeated.
   */
  afterCrash?: number | undefined;
  /**
   * The longest time that a run may take, in ms. Then its signal aborts, and another run may start. At most 24.8 days,
   * or `Infinity`. Default: `maxHold` of the module's `defaults`, or `Infinity`.
   */
  maxHold?: Duration | undefined;
  /**
   * Name of the provider, which must keep records: Redis, SQL, ZooKeeper, failover or memory. Default: the module's
   * default provider.
   */
  provider?: string | undefined;
}

/** The due time for which a job runs. */
export interface RunDueOptions {
  /**
   * When the run was due. All processes must pass the same time, so take it from the scheduler, not from the clock. The
   * job runs unless a process has already started a run of this key for this or a later time. It does not run if the
   * time is more than 1 minute ahead of the server's.
   */
  due: Date;
  /**
   * The longest the run may take, in ms. After that, its signal aborts, and a later run may start. At most 24.8
   * days, or `Infinity`. Default: `maxHold` of the module's `defaults`, or `Infinity`.
   */
  maxHold?: Duration | undefined;
  /**
   * Name of the provider, which must keep records: Redis, SQL, ZooKeeper, failover or memory. Default: the module's
   * default provider.
   */
  provider?: string | undefined;
}

/** Whether the job ran here, and its result. */
export type RunOnceResult<T> = { readonly ran: true; readonly value: T } | { readonly ran: false };

const EXAMPLE = "locks.runOnce('report', task, { minHold: '1m' }), or pass the time the run was due as { due }";

type OptionsOfCall = (RunOnceOptions & { due?: undefined }) | (RunDueOptions & { minHold?: undefined });

type LockOfRun = Pick<LockOptions, 'wait' | 'minHold' | 'maxHold' | 'provider'>;

const { minHold, maxHold, provider } = OF_LOCK;
const OPTIONS = {
  due: option<Date>(
    "a valid Date, the time at which the run was due: write locks.runOnce('report', task, { due: new Date(scheduledTime) })",
    (given) => (given instanceof Date && !Number.isNaN(given.getTime()) ? given : undefined),
  ),
  ...{ minHold, maxHold, provider },
} satisfies OptionTable<RunOnceOptions & RunDueOptions>;
const OF_METHOD = {
  ...{ minHold, maxHold, provider },
  catchUp: duration({ min: 1_000 }),
  afterCrash: count(0, 'a whole number from 0 to 100: how many times a run is restarted after a crash', 100),
} satisfies OptionTable<RunOnceOptions & RunTicksOptions>;

/**
 * The `@RunOnce` options for a run's lock and for the missing runs of a job with ticks.
 *
 * @throws LockConfigError
 */
export function readRunOptions(options: object): {
  readonly lock: LockOfRun;
  readonly missingRuns: MissingRunOptions | undefined;
} {
  const { catchUp, afterCrash, ...run } = read({ name: '@RunOnce' }, options, OF_METHOD);
  const lock = { wait: 0, ...run, minHold: run.minHold ?? 0 };
  if (run.minHold === undefined) return { lock, missingRuns: { catchUp, afterCrash: afterCrash ?? 0 } };
  const excluded = Object.entries({ catchUp, afterCrash }).find(([, value]) => value !== undefined)?.[0];
  if (excluded === undefined) return { lock, missingRuns: undefined };
  throw new LockConfigError(
    `Options "minHold" and "${excluded}" of @RunOnce are mutually exclusive: with "minHold", the job has no ticks to miss or repeat. Remove one of them.`,
  );
}

/**
 * Runs `task` in the process that gets the lock, or that is the first to start the run for `due`. Other processes don't
 * run it.
 *
 * @throws what `task` throws, and every lock error except busy
 */
export async function runOnce<T>(
  manager: LockManager,
  key: LockKey,
  task: (lock: Lock) => T | PromiseLike<T>,
  options: OptionsOfCall,
): Promise<RunOnceResult<T>> {
  assertTask('runOnce()', task);
  const { due, ...run } = read({ name: 'runOnce()' }, { ...options }, OPTIONS);
  if ((due === undefined) === (run.minHold === undefined)) {
    throw new LockConfigError(
      due
        ? 'Options "due" and "minHold" of runOnce() are mutually exclusive: remove one of them.'
        : `runOnce() is missing "minHold", the shortest time between two runs: write ${EXAMPLE}.`,
    );
  }
  const plan = manager.plan({ wait: 0, ...run, minHold: run.minHold ?? 0 });
  if (due) return await runDue(manager, key, task, due, plan);
  let lock: GrantedLock;
  try {
    lock = await manager.acquirePlanned(plan, key);
  } catch (error) {
    if (!isBusy(error)) throw error;
    publishSkipped(plan, error.key, 'busy');
    return { ran: false };
  }
  return { ran: true, value: await runGuarded(lock, task, plan.settings.onLost) };
}

async function runDue<T>(
  manager: LockManager,
  key: LockKey,
  task: (lock: Lock) => T | PromiseLike<T>,
  due: Date,
  plan: LockPlan,
): Promise<RunOnceResult<T>> {
  const [only, ...more] = normalizeKeys(key);
  if (only === undefined || more.length > 0) {
    throw new LockKeyError(
      'runOnce() with "due" takes one key, because a job has one record: join the keys into one string.',
    );
  }
  const started = await new Job(manager, only, plan).startTick(due.getTime(), undefined);
  if ('lock' in started) {
    return { ran: true, value: await runGuarded(started.lock, started.recorded(task), plan.settings.onLost) };
  }
  publishSkipped(plan, only, started.skipped);
  return { ran: false };
}
