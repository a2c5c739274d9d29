import type { CronTimeClass, ScheduleZone } from '../../recipes/jobs/schedule.js';

/** When a job of `@nestjs/schedule` is due: as much as is used of its `CronTime`. */
export interface DueTimes extends ScheduleZone {
  readonly source: string | { valueOf(): number };
}

/** As much as is used of the `CronJob` of the package `cron`. */
interface CronJob {
  readonly cronTime?: DueTimes;
  readonly isActive?: boolean;
}

/** As much as is used of the `SchedulerRegistry` of @nestjs/schedule, which this package never loads. */
export interface CronRegistry {
  getCronJobs(): ReadonlyMap<string, CronJob>;
}

/** As much as is used of its `SchedulerOrchestrator`. No public interface tells which job was made of a `@Cron` without a name. */
export interface CronOrchestrator {
  /** By the names in the registry. The options are the metadata of `@Cron`. */
  readonly cronJobs?: Readonly<Record<string, { readonly options: unknown }>>;
}

/** A job as `@Cron` declares it. */
export interface DeclaredJob {
  readonly name?: string | undefined;
}

/** The scheduler of an application, as its `SchedulerRegistry` shows it. */
export class Scheduler {
  #registries: readonly CronRegistry[] = [];
  #orchestrators: readonly CronOrchestrator[] = [];
  #cronTime: CronTimeClass | undefined;

  /** Both were found in the container at boot; they have jobs when `ScheduleModule` has bootstrapped. */
  use(registries: readonly CronRegistry[], orchestrators: readonly CronOrchestrator[]): void {
    this.#registries = registries;
    this.#orchestrators = orchestrators;
  }

  /** The class that computes the ticks of its jobs, from the first of them; `undefined` while there is none. */
  get cronTime(): CronTimeClass | undefined {
    if (this.#cronTime) return this.#cronTime;
    for (const registry of this.#registries) {
      for (const { cronTime } of registry.getCronJobs().values()) {
        if (cronTime && 'getNextDateFrom' in cronTime) return (this.#cronTime = cronTime.constructor as CronTimeClass);
      }
    }
    return undefined;
  }

  /** When a job is due, as `CronJob.setTime()` may have changed it since the boot; `undefined` if it is not there any more. */
  dueTimesOf(declared: DeclaredJob): DueTimes | undefined {
    return this.#jobsOf(declared)?.find(({ cronTime }) => cronTime)?.cronTime;
  }

  /** Whether the scheduler fires a job: not after `CronJob.stop()` or `deleteCronJob()`, and not before its `initialDelay` is over. */
  fires(declared: DeclaredJob): boolean {
    return this.#jobsOf(declared)?.some(isFired) ?? true;
  }

  /** The jobs of one declaration, of which each instance of its class has one; `undefined` where they cannot be found. */
  #jobsOf(declared: DeclaredJob): CronJob[] | undefined {
    const names = this.#namesOf(declared);
    return names?.flatMap((name) => this.#registries.flatMap((registry) => registry.getCronJobs().get(name) ?? []));
  }

  #namesOf(declared: DeclaredJob): string[] | undefined {
    if (declared.name !== undefined) return [declared.name];
    const made = this.#orchestrators.flatMap(({ cronJobs }) => Object.entries(cronJobs ?? {}));
    const own = made.filter(([, { options }]) => options === declared);
    return own.length > 0 ? own.map(([name]) => name) : undefined;
  }
}

/** A job that is due at one date has stopped itself when that has passed. */
function isFired({ isActive = true, cronTime }: CronJob): boolean {
  const source = cronTime?.source;
  return isActive || (source !== undefined && typeof source !== 'string' && source.valueOf() <= Date.now());
}
