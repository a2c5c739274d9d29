import { AsyncLocalStorage } from 'node:async_hooks';
import { errorText } from '../../api/cause.js';
import { LockConfigError } from '../../api/errors.js';
import type { JobTrace } from '../../api/lock-traces.js';
import { type LockPlan, publishSkipped, subjectOf } from '../../core/plan/lock-plan.js';
import { jobChannel } from '../../core/events/channels.js';
import { runGuarded } from '../../core/hold/guarded-task.js';
import type { LockManager } from '../../core/lock-manager.js';
import type { LocalJob } from '../../core/provider-core.js';
import { detached } from '../../core/toolkit/detached.js';
import { isUnavailable } from '../../core/toolkit/retryable.js';
import { Job, type Run } from './job.js';
import { type MissingRunOptions, MissingRuns } from './missing-runs.js';
import { lastTimeOf } from './record.js';
import type { Schedule } from './schedule.js';

/**
 * How early a timer may fire, in ms. Ticks are at least a second apart, so the previous tick is never mistaken for the
 * one that is due.
 */
const EARLY = 50;

/** A run that was started for a call to {@link ScheduledJob.begin}, until that call takes it. */
interface Offer {
  readonly job: ScheduledJob;
  run: Run | undefined;
}

const offers = new AsyncLocalStorage<Offer>();

/**
 * A job that a scheduler in this process fires at each tick of a schedule. Every instance fires the job, but only one
 * starts it for a given tick.
 *
 * - {@link begin} is called for each firing. It determines the tick by this process's clock.
 * - {@link attach} provides a way to call the job as its scheduler does, for runs that start in other ways.
 * - {@link start} is called at the end of startup, when the job can run. From then on, it makes up for missed and
 *   abandoned runs, as the options specify, until the application stops.
 */
export class ScheduledJob extends Job implements LocalJob {
  #call: (() => unknown) | undefined;
  readonly #missing: MissingRuns | undefined;
  /** When this process started scheduling the job, by the monotonic clock. */
  #scheduledAt: number | undefined;
  #trace: JobTrace | undefined;

  /**
   * @param key the lock's key, resolved to a single string
   * @param plan for a lock with `wait: 0` and no `minHold`
   * @param schedule returns `undefined` while the schedule is not known in this process
   * @throws LockConfigError for a provider without records
   */
  constructor(
    manager: LockManager,
    key: string,
    plan: LockPlan,
    readonly schedule: () => Schedule | undefined,
    options: MissingRunOptions,
  ) {
    super(manager, key, plan);
    if (options.catchUp !== undefined || options.afterCrash > 0) this.#missing = new MissingRuns(this, options);
  }

  /**
   * Resolves to a call's run: the one already started for it, or one for the latest tick by this process's clock,
   * unless a process has already started that tick. Resolves to `undefined` if the call is skipped. A failed task is
   * not run again.
   *
   * @throws LockUnavailableError if the backend does not respond; LockConfigError while the schedule is not known here,
   * and within a run of this job
   */
  async begin(): Promise<Run | undefined> {
    const offer = offers.getStore();
    if (offer?.job === this && offer.run) {
      const { run } = offer;
      offer.run = undefined;
      return run;
    }
    this.#publishTrace();
    if (this.isRunningAround()) {
      throw new LockConfigError(
        `Job "${this.key}" was called from its own run, so its tick has already started: call a method without @RunOnce. If an override calls super, move the body of the original method into such a method.`,
        { key: this.key, provider: this.plan.core.name },
      );
    }
    const schedule = this.schedule();
    const tick = this.#latestTick(schedule);
    let started: Awaited<ReturnType<Job['startTick']>>;
    try {
      started = await this.startTick(tick, schedule);
    } catch (error) {
      if (isUnavailable(error)) this.#missing?.lookLater();
      throw error;
    }
    if ('lock' in started) return started;
    publishSkipped(this.plan, this.key, started.skipped);
    if (started.skipped === 'clock') this.#missing?.awaitTick(tick);
    // The other process may crash, or may have crashed before recording the start.
    else if (started.record?.state === 'running' || started.skipped === 'busy') this.#missing?.lookLater();
    return undefined;
  }

  /**
   * @param call calls the job for a run that has already been started, just as its scheduler would. The called code
   * must call {@link begin}, which takes over that run. The call resolves when the run has ended.
   */
  attach(call: () => unknown): void {
    this.#call = call;
    this.plan.core.jobs.set(this.key, this);
  }

  nextTick(time: number): number | undefined {
    const schedule = this.schedule();
    return schedule?.next(schedule.latest(time) ?? time);
  }

  async runNow(): Promise<boolean> {
    const { plan, key } = this;
    const lock = await this.tryLock();
    if (!lock) {
      publishSkipped(plan, key, 'busy');
      return false;
    }
    if (await this.#callFor({ lock, recorded: (task) => task })) return true;
    throw new LockConfigError(`Job "${key}" was called by runNow(), ${NOT_RUN}.`, { key, provider: plan.core.name });
  }

  /**
   * Checks for missed and abandoned runs from now on. Call this once, where the job is scheduled.
   *
   * @param isFired whether the scheduler currently fires the job. Default: always
   */
  start(isFired = () => true): void {
    this.#scheduledAt = this.plan.core.clock.now();
    this.#publishTrace();
    this.#missing?.start(isFired);
  }

  /** Calls the job for a run without waiting for the run to end. */
  handOver(run: Run): void {
    this.#callFor(run).then(
      (isTaken) => {
        if (!isTaken) this.logError(`was called for a missed or abandoned run, ${NOT_RUN}`);
      },
      (error: unknown) => {
        this.logError(`failed while making up for a missed or abandoned run: ${errorText(error)}`);
      },
    );
  }

  logError(what: string): void {
    this.plan.core.logger.error(`Job "${this.key}" ${what}`);
  }

  #publishTrace(): void {
    if (this.#scheduledAt === undefined || !jobChannel.hasSubscribers) return;
    this.#trace ??= { ...subjectOf(this.key, this.plan), overdue: () => this.#overdue() };
    jobChannel.publish(this.#trace);
  }

  /** As {@link JobTrace.overdue}. */
  #overdue(): number | undefined {
    if (this.manager.stopping.aborted) return undefined;
    const { known, serverTime } = this.stored;
    const { clock } = this.plan.core;
    const schedule = this.schedule();
    // A record for another schedule says nothing about this schedule's ticks.
    const last =
      known?.schedule === schedule?.text && known
        ? Math.max(known.tick, known.endedAt === null ? known.tick : lastTimeOf(known, serverTime))
        : serverTime - (clock.now() - (this.#scheduledAt ?? clock.now()));
    const due = schedule?.next(last);
    return due === undefined ? 0 : Math.max(0, serverTime - due);
  }

  #latestTick(schedule: Schedule | undefined): number {
    const { plan, key, manager } = this;
    const now = plan.core.clock.wallTime();
    const tick = schedule ? schedule.latest(now + EARLY) : manager.isForTests ? now : undefined;
    if (tick !== undefined) return tick;
    throw new LockConfigError(
      schedule
        ? `Job "${key}" was called before its first tick: its schedule is ${schedule.text}, so this run does not belong to a tick. Call it later, or run it without a tick: LockAdmin.runNow('${key}').`
        : `Job "${key}" was called in a process that does not schedule cron jobs, so the tick for this run is unknown: ScheduleModule is not imported, has cronJobs: false, or has not started yet. Run the job without a tick: LockAdmin.runNow('${key}').`,
      { key, provider: plan.core.name },
    );
  }

  /**
   * Calls the job so that it takes the run. Resolves to whether it did; if not, the run ends here.
   *
   * @throws what the call throws
   */
  async #callFor(run: Run): Promise<boolean> {
    const offer: Offer = { job: this, run };
    let isLeft = false;
    try {
      await detached(() =>
        offers.run(offer, async () => {
          await this.#call?.();
        }),
      );
    } finally {
      isLeft = offer.run !== undefined;
      // A method that reaches its task later must not run it, because the lock is released here.
      offer.run = undefined;
      if (isLeft) await runGuarded(run.lock, run.recorded(notRun), 'ignore').catch(() => undefined);
    }
    return !isLeft;
  }
}

const NOT_RUN = 'but did not run its task: check whether a wrapper around its method skips calls';

function notRun(): Promise<never> {
  return Promise.reject(new Error('It did not run.'));
}
