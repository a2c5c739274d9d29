import { AsyncLocalStorage } from 'node:async_hooks';
import { safeText } from '../../api/cause.js';
import type { Timer } from '../../api/clock.js';
import { toMilliseconds } from '../../api/duration.js';
import { LockConfigError } from '../../api/errors.js';
import { shown } from '../../api/printable.js';
import type { JobTrace } from '../../api/lock-traces.js';
import { type LockPlan, publishSkipped, subjectOf } from '../../core/acquire/lock-plan.js';
import { jobChannel } from '../../core/events/channels.js';
import { runGuarded } from '../../core/hold/guarded-task.js';
import type { JobRecord } from '../../core/job-record.js';
import type { LockManager } from '../../core/lock-manager.js';
import type { LocalJob, Schedule } from '../../core/schedule.js';
import { leaveOnAbort } from '../../core/toolkit/abort-listeners.js';
import { detached } from '../../core/toolkit/detached.js';
import { isUnavailable } from '../../core/toolkit/retryable.js';
import { jitter } from '../../core/toolkit/timing.js';
import type { RunTicksOptions } from '../run-once.js';
import { BegunRun, Job, type NotBegun, PATIENCE, type Run } from './job.js';
import type { Seen } from './job-record-client.js';

/** By how many ms a timer may fire too early. Ticks are a second apart at least, so the tick before is never taken for the one that is due. */
const EARLY = 50;
/** For so many ms after a recovery the other processes write back what the backend has lost. */
const AFTER_RECOVERY = 5_000;

/** The runs of a job besides those that are fired. */
export type Looks = Pick<RunTicksOptions, 'catchUp' | 'afterCrash'>;

/** As {@link Looks}, checked: see {@link looksOf}. */
export interface ScheduledJobOptions {
  readonly catchUp: number | undefined;
  readonly afterCrash: number;
}

/** @throws LockConfigError for what cannot be */
export function looksOf({ catchUp, afterCrash = 0 }: Looks): ScheduledJobOptions {
  if (!Number.isInteger(afterCrash) || afterCrash < 0 || afterCrash > 100) {
    throw new LockConfigError(
      `Option "afterCrash" is ${shown(afterCrash)}, but must be a whole number from 0 to 100: how often a run is begun again that has lost its process.`,
    );
  }
  return {
    catchUp: catchUp === undefined ? undefined : toMilliseconds(catchUp, 'catchUp', { min: 1_000 }),
    afterCrash,
  };
}

/** A run that was begun for a call of {@link ScheduledJob.begin}, until that takes it. */
interface Offer {
  readonly job: ScheduledJob;
  run: Run | undefined;
}

const offers = new AsyncLocalStorage<Offer>();

/**
 * A job that a scheduler of this process fires at the ticks of a schedule, as all instances do: each tick is begun in one of them.
 *
 * - {@link begin} is for each firing. It names the tick by the clock of this process.
 * - {@link attach} gives a way to call the job as its scheduler does, for runs that begin otherwise.
 * - {@link start} is for the end of the boot, when the job can run. It makes up for missed and abandoned runs from then on, if the options ask
 *   for that, until the application stops.
 */
export class ScheduledJob implements LocalJob {
  readonly #job: Job;
  #call: (() => unknown) | undefined;
  #timer: Timer | undefined;
  #lookAt = 0;
  #notBefore = -Infinity;
  /** Looks follow each other. */
  #lastLook: Promise<void> = Promise.resolve();
  /** When this process began to schedule the job, by the monotonic clock. */
  #scheduledAt: number | undefined;
  #trace: JobTrace | undefined;
  /** The last missed tick that was too old. */
  #tooOld: number | undefined;

  /**
   * @param key of the lock, resolved: one text
   * @param plan of a lock with `wait: 0` and no `minHold`
   * @param schedule gives none while it is not known in this process
   * @throws LockConfigError for a provider without records
   */
  constructor(
    private readonly manager: LockManager,
    readonly key: string,
    private readonly plan: LockPlan,
    private readonly schedule: () => Schedule | undefined,
    private readonly options: ScheduledJobOptions,
  ) {
    this.#job = new Job(manager, key, plan, schedule);
  }

  /**
   * Begins the run of a call: the one that was begun for it, or that for the latest tick by the clock of this process, unless a process has begun it.
   * `undefined` where the call is skipped. A task that fails is not run again.
   *
   * @throws LockUnavailableError where the backend does not answer; LockConfigError while the schedule is not known here
   */
  async begin(): Promise<Run | undefined> {
    return this.#takeOffered() ?? (await this.#beginLatest());
  }

  /**
   * @param call calls the job for a run that was begun already, as its scheduler does: what it calls must call {@link begin}, which takes that run. It
   * resolves when the run is over.
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
    const lock = await this.#job.tryLock();
    if (!lock) {
      publishSkipped(plan, key, 'busy');
      return false;
    }
    if (await this.#callFor({ lock, recorded: (task) => task })) return true;
    throw new LockConfigError(`Job "${key}" was called by runNow(), ${NOT_RUN}.`, { key, provider: plan.core.name });
  }

  /** Looks for missed and abandoned runs, now and after what may leave some: with `catchUp` and `afterCrash`. Call it once, where the job is scheduled. */
  start(): void {
    this.#scheduledAt = this.plan.core.clock.now();
    this.#publishTrace();
    if (!this.#looks) return;
    leaveOnAbort(this.manager.stopping, {
      leave: () => {
        this.#cancelLook();
      },
    });
    this.plan.core.observe(({ type }) => {
      if (type === 'recovered') this.#onRecovered();
    });
    this.#lookIn(0);
  }

  #publishTrace(): void {
    if (this.#scheduledAt === undefined || !jobChannel.hasSubscribers) return;
    this.#trace ??= { ...subjectOf(this.key, this.plan), overdue: () => this.#overdue() };
    jobChannel.publish(this.#trace);
  }

  /** As {@link JobTrace.overdue}. */
  #overdue(): number | undefined {
    const { stored } = this.#job;
    const { known } = stored;
    if (this.manager.stopping.aborted) return undefined;
    const schedule = this.schedule();
    // A record of another schedule says nothing of the ticks of this one.
    const isOfSchedule = known !== undefined && known.schedule === schedule?.text;
    const now = stored.serverTime;
    const { clock } = this.plan.core;
    const scheduledSince = now - (clock.now() - (this.#scheduledAt ?? clock.now()));
    const due = schedule?.next(isOfSchedule ? Math.max(known.tick, known.endedAt ?? known.tick) : scheduledSince);
    return due === undefined ? 0 : Math.max(0, now - due);
  }

  #takeOffered(): Run | undefined {
    const offer = offers.getStore();
    if (offer?.job !== this) return undefined;
    const { run } = offer;
    offer.run = undefined;
    return run;
  }

  async #beginLatest(): Promise<Run | undefined> {
    const { plan, key } = this;
    const tick = this.#latestTick();
    this.#publishTrace();
    let begun: BegunRun | NotBegun;
    try {
      begun = await this.#job.begin(tick);
    } catch (error) {
      if (isUnavailable(error)) this.#lookLater();
      throw error;
    }
    if (begun instanceof BegunRun) return begun;
    publishSkipped(plan, key, begun.skipped);
    // Its process may crash, or has crashed before it has recorded that it begins.
    if (begun.record?.state === 'running' || begun.skipped === 'busy') this.#lookLater();
    return undefined;
  }

  #latestTick(): number {
    const { plan, key, manager } = this;
    const now = plan.core.clock.wallTime();
    const schedule = this.schedule();
    const tick = schedule ? schedule.latest(now + EARLY) : manager.isForTests ? now : undefined;
    if (tick !== undefined) return tick;
    throw new LockConfigError(
      schedule
        ? `Job "${key}" was called before its first tick: its schedule is ${schedule.text}, so this run belongs to no tick. Call it later, or run it without a tick: LockAdmin.runNow('${key}').`
        : `Job "${key}" was called in a process that schedules no cron jobs, so the tick of this run is not known: ScheduleModule is not imported, has cronJobs: false, or has not started yet. Run the job without a tick: LockAdmin.runNow('${key}').`,
      { key, provider: plan.core.name },
    );
  }

  get #looks(): boolean {
    const { catchUp, afterCrash } = this.options;
    return catchUp !== undefined || afterCrash > 0;
  }

  /** A tick that the backend has lost is written back first, by all processes, so that none makes up for a run that took place. */
  #onRecovered(): void {
    if (this.manager.stopping.aborted) return;
    this.#cancelLook();
    this.#notBefore = this.plan.core.clock.now() + AFTER_RECOVERY;
    this.#inOrder(() => this.#job.stored.restore(PATIENCE));
    this.#lookIn(0);
  }

  /** After a lease: so long the lock of a process that has crashed is kept. Not all processes at the same time. */
  #lookLater(): void {
    const { core, settings } = this.plan;
    this.#lookIn(jitter(core.random, settings.lease * 1.25, 0.2));
  }

  /** Looks in so many ms, or earlier where that was planned. */
  #lookIn(delay: number): void {
    const { clock } = this.plan.core;
    if (!this.#looks || this.manager.stopping.aborted) return;
    const at = Math.max(clock.now() + delay, this.#notBefore);
    if (this.#timer !== undefined && this.#lookAt <= at) return;
    this.#cancelLook();
    this.#lookAt = at;
    const onTime = () => {
      this.#timer = undefined;
      this.#inOrder(() => this.#look());
    };
    this.#timer = clock.setTimer(onTime, at - clock.now());
  }

  #cancelLook(): void {
    if (this.#timer !== undefined) this.plan.core.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }

  #inOrder(work: () => Promise<void>): void {
    this.#lastLook = this.#lastLook.then(work).catch((error: unknown) => {
      if (this.manager.stopping.aborted) return;
      if (isUnavailable(error)) this.#lookLater();
      else this.#log(`cannot look for missed and abandoned runs: ${safeText(String(error))}`);
    });
  }

  async #look(): Promise<void> {
    const { catchUp } = this.options;
    const seen = await this.#job.stored.read(PATIENCE);
    // The backend has recovered meanwhile.
    if (this.plan.core.clock.now() < this.#notBefore) this.#lookIn(0);
    else if (seen.record?.state === 'running') await this.#lookForAbandoned(seen, seen.record);
    else if (catchUp !== undefined) await this.#lookForMissed(seen, catchUp);
  }

  /** A run is abandoned if it is recorded as running and its lock is free: a run records its end before it releases. */
  async #lookForAbandoned(seen: Seen, record: JobRecord): Promise<void> {
    const { afterCrash } = this.options;
    const lock = await this.#job.tryLock();
    if (!lock) {
      this.#lookLater();
      return;
    }
    const { tick, attempt } = record;
    if (attempt <= afterCrash) {
      const begun = await this.#job.record(lock, seen, { tick, attempt: attempt + 1 });
      if (begun instanceof BegunRun) {
        this.#job.publishAbandoned(record, true);
        this.#handOver(begun);
        return;
      }
      await lock.releaseAfterTask(false);
    } else {
      const closed: JobRecord = { ...record, state: 'failed' };
      try {
        const found = await this.#job.stored.replace(seen, closed, PATIENCE);
        if (found.record?.run === record.run && found.record.state === 'failed')
          this.#job.publishAbandoned(record, false);
      } finally {
        await lock.releaseAfterTask(false);
      }
    }
    // For what was missed since, and for what another process has recorded meanwhile.
    this.#lookIn(0);
  }

  async #lookForMissed(seen: Seen, catchUp: number): Promise<void> {
    const { key } = this;
    const schedule = this.schedule();
    if (!schedule) return;
    const { events, name } = this.plan.core;
    const now = this.#job.stored.serverTime;
    const tick = schedule.latest(now);
    if (seen.record?.schedule !== schedule.text) {
      await this.#recordBaseline(seen, tick ?? now, schedule);
      return;
    }
    const isMissed = (last: JobRecord | undefined) =>
      tick !== undefined &&
      last?.schedule === schedule.text &&
      tick > last.tick &&
      tick > (last.endedAt ?? last.begunAt);
    if (tick === undefined || !isMissed(seen.record)) return;
    const age = now - tick;
    // For so long a process that was fired may still begin it.
    const patience = this.#job.patience(tick);
    if (age < patience) {
      this.#lookIn(patience - age);
      return;
    }
    const event = { key, provider: name, tick: new Date(tick), schedule: schedule.text };
    if (age > catchUp) {
      if (this.#tooOld !== tick) events.publish('run-missed', event);
      this.#tooOld = tick;
      return;
    }
    const begun = await this.#job.begin(tick, isMissed);
    if (begun instanceof BegunRun) {
      events.publish('run-missed', event);
      this.#handOver(begun);
    } else if (begun.skipped !== 'done') this.#lookLater();
  }

  /** Nothing is known of runs by this schedule: ticks are missed from now on. */
  async #recordBaseline(seen: Seen, tick: number, { text }: Schedule): Promise<void> {
    const { core } = this.plan;
    const now = this.#job.stored.serverTime;
    const baseline: JobRecord = {
      ...{ tick: Math.max(seen.record?.tick ?? tick, tick), run: core.random.id(), state: 'baseline' },
      ...{ begunAt: now, endedAt: now, instance: core.instance, attempt: 0, schedule: text },
    };
    const found = await this.#job.stored.replace(seen, baseline, PATIENCE);
    if (found.record?.run !== baseline.run) this.#lookIn(0);
  }

  /** Calls the job for a run, and does not wait for its end. */
  #handOver(run: BegunRun): void {
    this.#callFor(run).then(
      (isTaken) => {
        if (!isTaken) this.#log(`was called for a missed or abandoned run, ${NOT_RUN}`);
      },
      (error: unknown) => {
        this.#log(`has failed in a run that made up for a missed or abandoned one: ${safeText(String(error))}`);
      },
    );
  }

  /** Calls the job, which takes the run. Answers whether it did; otherwise the run ends here. @throws what the call throws */
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
      // A method that comes to its task later must not run it, because the lock is released here.
      offer.run = undefined;
      if (isLeft) await runGuarded(run.lock, run.recorded(notRun), 'ignore').catch(() => undefined);
    }
    return !isLeft;
  }

  #log(what: string): void {
    this.plan.core.logger.error(`Job "${this.key}" ${what}`);
  }
}

const NOT_RUN = 'and did not run its task: see whether something around its method skips calls';

function notRun(): Promise<never> {
  return Promise.reject(new Error('It did not run.'));
}
