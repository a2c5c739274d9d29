import type { CronTimeClass, ScheduleZone } from '../../recipes/jobs/ticks.js';

/** When a job of `@nestjs/schedule` is due: as much as is used of its `CronTime`. */
export interface DueTimes extends ScheduleZone {
  readonly source: string | { valueOf(): number };
}

/** As much as is used of the `SchedulerRegistry` of @nestjs/schedule, which this package never loads. */
export interface CronRegistry {
  getCronJobs(): ReadonlyMap<string, { readonly cronTime?: DueTimes }>;
}

/** The scheduler of an application, as its `SchedulerRegistry` shows it. */
export class Scheduler {
  #registries: readonly CronRegistry[] = [];
  #cronTime: CronTimeClass | undefined;

  /** @param registries found in the container at boot; they have jobs when `ScheduleModule` has bootstrapped */
  use(registries: readonly CronRegistry[]): void {
    this.#registries = registries;
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

  /** When a job is due that has a name: what `CronJob.setTime()` has changed since the boot, too. */
  dueTimesOf(name: string): DueTimes | undefined {
    for (const registry of this.#registries) {
      const cronTime = registry.getCronJobs().get(name)?.cronTime;
      if (cronTime) return cronTime;
    }
    return undefined;
  }
}
