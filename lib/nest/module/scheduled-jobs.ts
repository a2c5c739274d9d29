import type { InstanceWrapper } from '@nestjs/core/injector/instance-wrapper.js';
import type { ScheduledJob } from '../../recipes/jobs/scheduled-job.js';
import { lockedMethodsBehind } from '../methods/lock-metadata.js';
import type { LockedMethod } from '../methods/locked-method.js';
import { type CronMark, cronMarkOf } from '../methods/method-ticks.js';
import type { LockService } from '../service/lock.service.js';
import type { CronOrchestrator, CronRegistry, Scheduler } from '../service/scheduler.js';

/** A provider whose class has locked methods. */
export interface LockedProvider {
  readonly methods: readonly LockedMethod[];
  readonly prototype: object;
  readonly instance: unknown;
  /** One instance for the whole application, so that `@nestjs/schedule` can call it. */
  readonly isSingleton: boolean;
}

/** A method of a class that has the key of a job. */
interface KeyOwner {
  readonly prototype: object;
  readonly method: LockedMethod;
}

/** The methods of an application that run once for each tick. */
export class ScheduledJobs {
  readonly problems: readonly string[];
  /** Whether the application imports `ScheduleModule`. */
  readonly hasScheduler: boolean;
  readonly #scheduler: Scheduler;
  /** Those that are scheduled in this process. */
  readonly #scheduled = new Map<ScheduledJob, CronMark>();

  constructor(service: LockService, providers: readonly LockedProvider[], wrappers: readonly InstanceWrapper[]) {
    const registries = instancesWith<CronRegistry>(wrappers, 'getCronJobs', 'addCronJob');
    this.#scheduler = service.scheduler;
    this.#scheduler.use(registries, instancesWith<CronOrchestrator>(wrappers, 'addCron', 'mountCron'));
    this.hasScheduler = registries.length > 0;
    const schedules = schedulesCronJobs(wrappers);
    const problems: string[] = [];
    const owners = new Map<string, KeyOwner>();
    for (const { methods, prototype, instance, isSingleton } of providers) {
      for (const method of methods) {
        const job = jobIn(service, method);
        // `@nestjs/schedule` looks at the methods of instances, and of singletons alone.
        const inEffect = Object(Reflect.get(prototype, method.methodName)) as object;
        const cron = cronMarkOf(inEffect);
        if (!job || !isSingleton || !cron) continue;
        if (!lockedMethodsBehind(inEffect).includes(method)) {
          // Otherwise it is an override, with a schedule of its own.
          if (inEffect === method.inEffect) {
            problems.push(
              `${nameOf({ prototype, method })}: a decorator between @Cron and @RunOnce has replaced the method without its metadata, so missed runs could not be made up for, and runNow() and nextTick would not know the job: put that decorator below @RunOnce`,
            );
          }
          continue;
        }
        const id = JSON.stringify([method.planIn(service).lock.core.name, job.key]);
        const other = owners.get(id);
        if (!other) {
          owners.set(id, { prototype, method });
          job.attach(() => (instance as Record<string | symbol, () => unknown>)[method.methodName]?.());
          if (schedules && cron.disabled !== true) this.#scheduled.set(job, cron);
        } else if (other.prototype !== prototype || other.method !== method) {
          problems.push(
            `${nameOf({ prototype, method })}: ${nameOf(other)} has the key "${job.key}" as well, and a job has one record, so each tick would run only one of them: give each a key of its own, or call both from one method`,
          );
        }
      }
    }
    this.problems = problems;
  }

  /** Looks for missed and abandoned runs from now on. Does not wait for them. */
  start(): void {
    for (const [job, cron] of this.#scheduled) job.start(() => this.#scheduler.fires(cron));
  }
}

/** The instances of a class of `ScheduleModule`, by its methods, since bundlers rename classes. */
function instancesWith<T>(wrappers: readonly InstanceWrapper[], ...methods: readonly string[]): T[] {
  return wrappers
    .filter(({ metatype }) => {
      const prototype = (metatype as { prototype?: object } | null)?.prototype;
      return prototype !== undefined && methods.every((method) => method in prototype);
    })
    .map(({ instance }) => instance as T);
}

/** Whether `ScheduleModule` is imported, without `cronJobs: false`. */
function schedulesCronJobs(wrappers: readonly InstanceWrapper[]): boolean {
  return wrappers.some(
    ({ token, instance }) =>
      token === 'SCHEDULE_MODULE_OPTIONS' && (instance as { cronJobs?: boolean } | null)?.cronJobs !== false,
  );
}

function jobIn(service: LockService, method: LockedMethod): ScheduledJob | undefined {
  try {
    return method.planIn(service).job;
  } catch {
    // A method without a plan is a problem already.
    return undefined;
  }
}

function nameOf({ prototype, method }: KeyOwner): string {
  return `${prototype.constructor.name}.${String(method.methodName)}`;
}
