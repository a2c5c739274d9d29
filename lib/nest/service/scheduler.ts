import { type CronTimeClass, type Schedule, scheduleOf, type ScheduleZone } from '../../recipes/jobs/schedule.js';

/** When a job of `@nestjs/schedule` is due: as much as is used of its `CronTime`. */
interface DueTimes extends ScheduleZone {
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

/** The metadata that `@Cron` of @nestjs/schedule has recorded of a method. */
export interface CronMark extends ScheduleZone {
  readonly name?: string | undefined;
  readonly cronTime: DueTimes['source'];
  readonly disabled?: boolean | undefined;
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

  /** Gives the schedule of a job as it is at the moment, since `CronJob.setTime()` may change it. `undefined` while there is no {@link cronTime}. */
  scheduleOf(cron: CronMark): () => Schedule | undefined {
    const declared: DueTimes = { ...cron, source: cron.cronTime };
    let known: { readonly times: DueTimes; readonly schedule: Schedule } | undefined;
    return () => {
      const CronTime = this.cronTime;
      if (!CronTime) return undefined;
      const times = this.#jobsOf(cron)?.find(({ cronTime }) => cronTime)?.cronTime ?? declared;
      if (known?.times !== times) known = { times, schedule: scheduleOf(CronTime, times.source, times) };
      return known.schedule;
    };
  }

  /** Whether the scheduler fires a job: not after `CronJob.stop()` or `deleteCronJob()`, and not before its `initialDelay` is over. */
  fires(cron: CronMark): boolean {
    return this.#jobsOf(cron)?.some(isFired) ?? true;
  }

  /** The jobs of one declaration, of which each instance of its class has one; `undefined` where they cannot be found. */
  #jobsOf(cron: CronMark): CronJob[] | undefined {
    const names = this.#namesOf(cron);
    return names?.flatMap((name) => this.#registries.flatMap((registry) => registry.getCronJobs().get(name) ?? []));
  }

  #namesOf(cron: CronMark): string[] | undefined {
    if (cron.name !== undefined) return [cron.name];
    const made = this.#orchestrators.flatMap(({ cronJobs }) => Object.entries(cronJobs ?? {}));
    const own = made.filter(([, { options }]) => options === cron);
    return own.length > 0 ? own.map(([name]) => name) : undefined;
  }
}

/** A job that is due at one date has stopped itself when that has passed. */
function isFired({ isActive = true, cronTime }: CronJob): boolean {
  const source = cronTime?.source;
  return isActive || (source !== undefined && typeof source !== 'string' && source.valueOf() <= Date.now());
}
