import 'reflect-metadata';
import { LockConfigError } from '../../api/errors.js';
import type { LockPlan } from '../../core/plan/lock-plan.js';
import { normalizeKeys } from '../../key/lock-key.js';
import type { MissingRunOptions } from '../../recipes/jobs/missing-runs.js';
import { ScheduledJob } from '../../recipes/jobs/scheduled-job.js';
import { type CronTimeClass, scheduleOf } from '../../recipes/jobs/schedule.js';
import type { LockService } from '../service/lock.service.js';
import type { CronMark } from '../service/scheduler.js';
import type { DeclaredMethod } from './declared-method.js';

/**
 * Whether `@nestjs/schedule` calls a method, according to the metadata of `@Cron`, `@Interval`, and `@Timeout`. Doesn't
 * load that package.
 */
export function isScheduled({ inEffect }: DeclaredMethod): boolean {
  return Reflect.hasMetadata('SCHEDULER_TYPE', inEffect);
}

/** A method's `@Cron` metadata. */
export function cronMarkOf(method: object): CronMark | undefined {
  return Reflect.getMetadata('SCHEDULE_CRON_OPTIONS', method) as CronMark | undefined;
}

/**
 * The job of a method that `@RunOnce` runs once per tick.
 *
 * @throws LockConfigError for a method that cannot have ticks
 */
export function jobOf(
  { key, kind, inEffect }: DeclaredMethod,
  missingRuns: MissingRunOptions,
  plan: LockPlan,
  service: LockService,
): ScheduledJob {
  const cron = cronMarkOf(inEffect);
  if (!cron) throw new LockConfigError(`@RunOnce has no "minHold", ${withoutCron(inEffect)}`);
  if (kind === 'iteration' || kind === 'observable') {
    throw new LockConfigError(
      'it returns a stream, which its scheduler would not read: make it an async method that returns a promise',
    );
  }
  if (key.fixed === undefined) {
    throw new LockConfigError(
      `@RunOnce has no "minHold", so the method is one job with one record, and its key must be the same for all calls: write a fixed key, set "minHold", or, for several jobs, call locks.runOnce(key, task, { due })`,
    );
  }
  const [fixed = key.fixed] = normalizeKeys(key.fixed);
  return new ScheduledJob(service.manager, fixed, plan, service.scheduler.scheduleOf(cron), missingRuns);
}

function withoutCron(method: object): string {
  const scheduled = Reflect.hasMetadata('SCHEDULE_INTERVAL_OPTIONS', method)
    ? '@Interval'
    : Reflect.hasMetadata('SCHEDULE_TIMEOUT_OPTIONS', method)
      ? '@Timeout'
      : undefined;
  return scheduled === undefined
    ? 'so it needs ticks from a @Cron on the same method: add @Cron; set "minHold", the shortest time between two runs; or have another scheduler call locks.runOnce(key, task, { due })'
    : `and ${scheduled} has no ticks that all instances share, since each counts from its own start: set "minHold", the shortest time between two runs`;
}

/** How many ticks are compared: one per minute of an hour. `cron` takes up to a millisecond per tick. */
const TICKS = 61;
/** An expression's ticks are at least a second apart. */
const SECOND = 1_000;

/**
 * The shortest time between two calls that `@nestjs/schedule` will soon make to a method, in ms, according to the
 * metadata of `@Cron` and `@Interval`. `undefined` for a method that is unscheduled or scheduled only once, and while
 * the class is unknown.
 */
export function shortestGap({ inEffect }: DeclaredMethod, CronTime: CronTimeClass | undefined): number | undefined {
  const interval = Reflect.getMetadata('SCHEDULE_INTERVAL_OPTIONS', inEffect) as { timeout?: unknown } | undefined;
  if (typeof interval?.timeout === 'number') return interval.timeout;
  const cron = cronMarkOf(inEffect);
  if (!cron || cron.disabled === true || !CronTime) return undefined;
  // Uses UTC, because an hour skipped in spring isn't a reason to warn.
  const schedule = scheduleOf(CronTime, cron.cronTime, { timeZone: 'UTC' });
  let shortest: number | undefined;
  let tick = schedule.next(Date.now());
  for (let count = 1; tick !== undefined && count < TICKS && shortest !== SECOND; count += 1) {
    const next = schedule.next(tick);
    if (next !== undefined) shortest = Math.min(shortest ?? Infinity, next - tick);
    tick = next;
  }
  return shortest;
}
