import type { CronTimeClass } from '../../recipes/jobs/ticks.js';

/** As much as is used of the `SchedulerRegistry` of @nestjs/schedule, which this package never loads. */
export interface CronRegistry {
  getCronJobs(): ReadonlyMap<string, { readonly cronTime?: object }>;
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
}
