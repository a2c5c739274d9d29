import type { InstanceWrapper } from '@nestjs/core/injector/instance-wrapper.js';
import type { ScheduledJob } from '../../recipes/jobs/scheduled-job.js';
import { cronMarkOf, isScheduled } from '../methods/schedule-metadata.js';
import { type DeclaredMethod, isSameMethod, locksBehind } from '../methods/declared-method.js';
import type { CronMark, CronOrchestrator, CronRegistry } from '../service/scheduler.js';
import type { Application } from './explore-application.js';

/** The method that declares a job's key. */
interface KeyOwner {
  readonly prototype: object;
  readonly method: DeclaredMethod;
}

/**
 * Connects an application's methods that run once per tick with its scheduler. Returns the jobs that this process
 * schedules.
 */
export function findJobs(
  { service, providers, plans, problems, warnings }: Application,
  wrappers: readonly InstanceWrapper[],
): ReadonlyMap<ScheduledJob, CronMark> {
  const found = new Map<ScheduledJob, CronMark>();
  const registries = instancesWith<CronRegistry>(wrappers, 'getCronJobs', 'addCronJob');
  service.scheduler.use(registries, instancesWith<CronOrchestrator>(wrappers, 'addCron', 'mountCron'));
  const scheduled = [...plans.keys()].filter(isScheduled);
  if (registries.length === 0 && scheduled.length > 0) {
    const names = new Set(scheduled.map(({ name }) => name));
    warnings.add(
      `Nothing calls ${[...names].join(', ')} on schedule, because the application does not import ScheduleModule: ` +
        'import ScheduleModule.forRoot() from @nestjs/schedule, with { cronJobs: false } in a process that must not schedule jobs.',
    );
  }
  const schedules = schedulesCronJobs(wrappers);
  const owners = new Map<string, KeyOwner>();
  for (const { methods, prototype, instance, isSingleton } of providers) {
    for (const method of methods) {
      const plan = plans.get(method);
      const job = plan?.job;
      // `@nestjs/schedule` explores only singletons' methods.
      const inEffect = Object(Reflect.get(prototype, method.methodName)) as object;
      const cron = cronMarkOf(inEffect);
      if (!job || !isSingleton || !cron) continue;
      if (!locksBehind(inEffect).includes(method)) {
        // If they differ, the method is an override with its own schedule.
        if (inEffect === method.inEffect) {
          problems.add(
            `${nameOf({ prototype, method })}: a decorator between @Cron and @RunOnce has replaced the method without its metadata, so catching up on missed runs, runNow(), and nextTick would not work: put that decorator below @RunOnce`,
          );
        }
        continue;
      }
      if (methods.some((each) => each.decorator === '@OnlyLeader' && isSameMethod(each, method))) {
        problems.add(
          `${nameOf({ prototype, method })}: it has both @RunOnce and @OnlyLeader, so an instance that does not lead would start a run and then skip it: remove @OnlyLeader, since @RunOnce runs each tick in only one instance`,
        );
      }
      const id = JSON.stringify([plan.lock.core.name, job.key]);
      const other = owners.get(id);
      if (!other) {
        owners.set(id, { prototype, method });
        job.attach(() => (instance as Record<string | symbol, () => unknown>)[method.methodName]?.());
        if (schedules && cron.disabled !== true) found.set(job, cron);
      } else if (other.prototype !== prototype || other.method !== method) {
        problems.add(
          `${nameOf({ prototype, method })}: ${nameOf(other)} also has the key "${job.key}", and a job has one record, so each tick would run only one of them: give each its own key, or call both from one method`,
        );
      }
    }
  }
  return found;
}

/** The instances of a `ScheduleModule` class. The class is found by its methods, because bundlers rename classes. */
function instancesWith<T>(wrappers: readonly InstanceWrapper[], ...methods: readonly string[]): T[] {
  return wrappers
    .filter(({ metatype }) => {
      const prototype = (metatype as { prototype?: object } | null)?.prototype;
      return prototype !== undefined && methods.every((method) => method in prototype);
    })
    .map(({ instance }) => instance as T);
}

/** Whether `ScheduleModule` is imported without `cronJobs: false`. */
function schedulesCronJobs(wrappers: readonly InstanceWrapper[]): boolean {
  return wrappers.some(
    ({ token, instance }) =>
      token === 'SCHEDULE_MODULE_OPTIONS' && (instance as { cronJobs?: boolean } | null)?.cronJobs !== false,
  );
}

function nameOf({ prototype, method }: KeyOwner): string {
  return `${prototype.constructor.name}.${String(method.methodName)}`;
}
