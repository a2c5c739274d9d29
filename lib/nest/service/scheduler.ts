import { type CronTimeClass, type Schedule, scheduleOf, type ScheduleZone } from '../../recipes/jobs/schedule.js';

/** When a `@nestjs/schedule` job is due: the part of its `CronTime` used here. */
interface DueTimes extends ScheduleZone {
  readonly source: string | { valueOf(): number };
}

/** The part of the `cron` package's `CronJob` used here. */
interface CronJob {
  readonly cronTime?: DueTimes;
  readonly isActive?: boolean;
}

/** The part of `SchedulerRegistry` used here. This package never loads @nestjs/schedule. */
export interface CronRegistry {
  getCronJobs(): ReadonlyMap<string, CronJob>;
}

/**
 * The part of `SchedulerOrchestrator` used here. No public interface shows which job belongs to an unnamed `@Cron`.
 */
export interface CronOrchestrator {
  /** The jobs, keyed by name in the registry. Their options are the `@Cron` metadata. */
  readonly cronJobs?: Readonly<Record<string, { readonly options: unknown }>>;
}

/** A method's `@Cron` metadata. */
export interface CronMark extends ScheduleZone {
  readonly name?: string | undefined;
  readonly cronTime: DueTimes['source'];
  readonly disabled?: boolean | undefined;
}

/** An application's scheduler, read from its `SchedulerRegistry`. */
export class Scheduler {
  #registries: readonly CronRegistry[] = [];
  #orchestrators: readonly CronOrchestrator[] = [];
  #cronTime: CronTimeClass | undefined;

  /** Both are in the container at boot, but contain no jobs until `ScheduleModule` has bootstrapped. */
  use(registries: readonly CronRegistry[], orchestrators: readonly CronOrchestrator[]): void {
    this.#registries = registries;
    this.#orchestrators = orchestrators;
  }

  /** The class that computes the jobs' ticks, taken from the first job. `undefined` while there are no jobs. */
  get cronTime(): CronTimeClass | undefined {
    if (this.#cronTime) return this.#cronTime;
    for (const registry of this.#registries) {
      for (const { cronTime } of registry.getCronJobs().values()) {
        if (cronTime && 'getNextDateFrom' in cronTime) return (this.#cronTime = cronTime.constructor as CronTimeClass);
      }
    }
    return undefined;
  }

  /**
   * A function that returns a job's current schedule, which `CronJob.setTime()` may change. `undefined` while
   * there is no {@link cronTime}.
   */
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

  /**
   * Whether the scheduler fires a job. It doesn't after `CronJob.stop()` or `deleteCronJob()`, or during its
   * `initialDelay`.
   */
  fires(cron: CronMark): boolean {
    return this.#jobsOf(cron)?.some(isFired) ?? true;
  }

  /** A declaration's jobs, one for each instance of its class. `undefined` if they cannot be found. */
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

/** Whether the scheduler fires the job. A job with a single due date stops itself once that date has passed. */
function isFired({ isActive = true, cronTime }: CronJob): boolean {
  const source = cronTime?.source;
  return isActive || (source !== undefined && typeof source !== 'string' && source.valueOf() <= Date.now());
}
