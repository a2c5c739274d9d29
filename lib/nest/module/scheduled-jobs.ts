import type { InstanceWrapper } from '@nestjs/core/injector/instance-wrapper.js';
import type { ScheduledJob } from '../../recipes/jobs/scheduled-job.js';
import { lockedMethodsBehind } from '../methods/lock-metadata.js';
import type { LockedMethod } from '../methods/locked-method.js';
import { cronMarkOf } from '../methods/method-ticks.js';
import type { LockService } from '../service/lock.service.js';
import type { CronRegistry } from '../service/scheduler.js';

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
  /** Those that are scheduled in this process. */
  readonly #scheduled = new Set<ScheduledJob>();

  constructor(service: LockService, providers: readonly LockedProvider[], wrappers: readonly InstanceWrapper[]) {
    const registries = registriesIn(wrappers);
    service.scheduler.use(registries);
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
        if (!job || !isSingleton || !cron || !lockedMethodsBehind(inEffect).includes(method)) continue;
        const id = JSON.stringify([method.planIn(service).lock.core.name, job.key]);
        const other = owners.get(id);
        if (!other) {
          owners.set(id, { prototype, method });
          job.attach(() => (instance as Record<string | symbol, () => unknown>)[method.methodName]?.());
          if (schedules && cron.disabled !== true) this.#scheduled.add(job);
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
    for (const job of this.#scheduled) job.start();
  }
}

/** The registries of the `ScheduleModule` of an application, by what they can do, since bundlers rename classes. */
function registriesIn(wrappers: readonly InstanceWrapper[]): CronRegistry[] {
  return wrappers
    .filter(({ metatype }) => {
      const prototype = (metatype as { prototype?: object } | null)?.prototype;
      return prototype !== undefined && 'getCronJobs' in prototype && 'addCronJob' in prototype;
    })
    .map(({ instance }) => instance as CronRegistry);
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
