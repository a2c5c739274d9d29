import 'reflect-metadata';
import { LockConfigError } from '../../api/errors.js';
import type { LockPlan } from '../../core/plan/lock-plan.js';
import type { Schedule } from '../../core/schedule.js';
import type { ResultKind } from '../../decoration/decorated-method.js';
import { normalizeKeys } from '../../key/lock-key.js';
import type { Looks } from '../../recipes/jobs/missing-runs.js';
import { ScheduledJob } from '../../recipes/jobs/scheduled-job.js';
import { scheduleOf, type ScheduleZone } from '../../recipes/jobs/ticks.js';
import type { LockService } from '../service/lock.service.js';
import type { DeclaredJob, DueTimes } from '../service/scheduler.js';
import type { MethodKey } from './method-key.js';

/** The metadata that `@Cron` of @nestjs/schedule has recorded of a method. */
export interface CronMark extends ScheduleZone, DeclaredJob {
  readonly cronTime: DueTimes['source'];
  readonly disabled?: boolean | undefined;
}

/** A decorated method, as far as a plan of it depends on that. */
export interface MethodDeclaration {
  /** For messages, such as `OrderService.pay`. */
  readonly name: string;
  readonly key: MethodKey;
  readonly kind: ResultKind;
  /** The function that a call runs, with all decorators on it: their marks are its metadata. */
  readonly inEffect: object;
}

/** Whether `@nestjs/schedule` calls a method: known by the mark that `@Cron`, `@Interval` and `@Timeout` leave, without that package. */
export function isScheduled(method: object): boolean {
  return Reflect.hasMetadata('SCHEDULER_TYPE', method);
}

/** The mark that `@Cron` leaves on a method, read without its package. */
export function cronMarkOf(method: object): CronMark | undefined {
  return Reflect.getMetadata('SCHEDULE_CRON_OPTIONS', method) as CronMark | undefined;
}

/**
 * The job of a method that `@RunOnce` runs once for each tick.
 *
 * @throws LockConfigError for a method that cannot have ticks
 */
export function jobOf(
  { key, kind, inEffect }: MethodDeclaration,
  looks: Looks,
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
      `@RunOnce has no "minHold", so the method is one job with one record, and its key must be the same for all calls: write a fixed key, set "minHold", or call locks.runOnce(key, task, { due }) in a method for several jobs`,
    );
  }
  const [fixed = key.fixed] = normalizeKeys(key.fixed);
  return new ScheduledJob(service.manager, fixed, plan, scheduleIn(service, cron), looks);
}

/** Gives the schedule in an application, as it is at the moment. */
function scheduleIn({ scheduler }: LockService, cron: CronMark): () => Schedule | undefined {
  const declared: DueTimes = { ...cron, source: cron.cronTime };
  let known: { readonly times: DueTimes; readonly schedule: Schedule } | undefined;
  return () => {
    const CronTime = scheduler.cronTime;
    if (!CronTime) return undefined;
    const times = scheduler.dueTimesOf(cron) ?? declared;
    if (known?.times !== times) known = { times, schedule: scheduleOf(CronTime, times.source, times) };
    return known.schedule;
  };
}

function withoutCron(method: object): string {
  const scheduled = Reflect.hasMetadata('SCHEDULE_INTERVAL_OPTIONS', method)
    ? '@Interval'
    : Reflect.hasMetadata('SCHEDULE_TIMEOUT_OPTIONS', method)
      ? '@Timeout'
      : undefined;
  return scheduled === undefined
    ? 'so it needs the ticks of a @Cron on the same method, and there is none: add @Cron; or set "minHold", the shortest time between two runs; or let another scheduler call locks.runOnce(key, task, { due })'
    : `and ${scheduled} has no ticks that all instances share, since each counts from its own start: set "minHold", the shortest time between two runs`;
}
