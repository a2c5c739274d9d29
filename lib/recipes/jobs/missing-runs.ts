import { safeText } from '../../api/cause.js';
import type { Timer } from '../../api/clock.js';
import type { LockPlan } from '../../core/plan/lock-plan.js';
import { type JobRecord, lastTimeOf, MOST_AHEAD } from '../../core/job-record.js';
import type { Schedule } from '../../core/schedule.js';
import { leaveOnAbort } from '../../core/toolkit/abort-listeners.js';
import { isUnavailable } from '../../core/toolkit/retryable.js';
import { jitter } from '../../core/toolkit/timing.js';
import { BegunRun, type Job, PATIENCE } from './job.js';
import type { Seen } from './job-record-client.js';

/** For so many ms after a recovery the other processes write back what the backend has lost. */
const AFTER_RECOVERY = 5_000;

/** The runs of a job besides those that are fired: `catchUp` in ms. */
export interface Looks {
  readonly catchUp: number | undefined;
  readonly afterCrash: number;
}

/**
 * Finds the runs of a job that nobody makes: of a tick that no process has begun (`catchUp`), and of a process that has crashed (`afterCrash`). Begins them
 * again, as far as the options ask for that, until the application stops.
 */
export class MissingRuns {
  /** Whether the scheduler fires the job at the moment. */
  #isFired = () => true;
  #timer: Timer | undefined;
  #lookAt = 0;
  #notBefore = -Infinity;
  /** Looks follow each other. */
  #lastLook: Promise<void> = Promise.resolve();
  /** The last missed tick that was too old. */
  #tooOld: number | undefined;

  constructor(
    private readonly job: Job,
    private readonly key: string,
    private readonly plan: LockPlan,
    private readonly schedule: () => Schedule | undefined,
    private readonly options: Looks,
    /** Aborts when the application stops. */
    private readonly stopping: AbortSignal,
    /** Makes a run that was begun here, and does not wait for its end. */
    private readonly make: (run: BegunRun) => void,
  ) {}

  /** Looks now, and after what may leave some. Call it once. @param isFired whether the scheduler fires the job: one that was stopped, or has not started yet, is not run */
  start(isFired: () => boolean): void {
    if (!this.#looks) return;
    this.#isFired = isFired;
    leaveOnAbort(this.stopping, {
      leave: () => {
        this.#cancelLook();
      },
    });
    this.plan.core.observe(({ type }) => {
      if (type === 'recovered') this.#onRecovered();
    });
    this.#lookIn(0);
  }

  get #looks(): boolean {
    const { catchUp, afterCrash } = this.options;
    return catchUp !== undefined || afterCrash > 0;
  }

  /** A tick that the backend has lost is written back first, by all processes, so that none makes up for a run that took place. */
  #onRecovered(): void {
    if (this.stopping.aborted) return;
    this.#cancelLook();
    this.#notBefore = this.plan.core.clock.now() + AFTER_RECOVERY;
    this.#inOrder(async () => {
      const { stored } = this.job;
      await stored.restore(await stored.read(PATIENCE), PATIENCE);
    });
    this.#lookIn(0);
  }

  /** Looks after a lease: so long the lock of a process that has crashed is kept. Not all processes at the same time. */
  lookLater(): void {
    const { core, settings } = this.plan;
    this.#lookIn(jitter(core.random, settings.lease * 1.25, 0.2));
  }

  /** Looks in so many ms, or earlier where that was planned. */
  #lookIn(delay: number): void {
    const { clock } = this.plan.core;
    if (!this.#looks || this.stopping.aborted) return;
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
      if (this.stopping.aborted) return;
      if (isUnavailable(error)) this.lookLater();
      else this.#log(`cannot look for missed and abandoned runs: ${safeText(String(error))}`);
    });
  }

  async #look(): Promise<void> {
    // Nothing reports that it is started again.
    if (!this.#isFired()) {
      this.lookLater();
      return;
    }
    const { catchUp } = this.options;
    const { stored } = this.job;
    const found = await stored.read(PATIENCE);
    // Where there is none, an operator may have deleted it. An earlier one lacks an end that could not be written.
    const seen = found.record ? await stored.restore(found, PATIENCE) : found;
    // The backend has recovered meanwhile.
    if (this.plan.core.clock.now() < this.#notBefore) this.#lookIn(0);
    else if (seen.record?.state === 'running') await this.#lookForAbandoned(seen, seen.record);
    else if (catchUp !== undefined) await this.#lookForMissed(seen, catchUp);
  }

  /** A run is abandoned if it is recorded as running and its lock is free: a run records its end before it releases. */
  async #lookForAbandoned(seen: Seen, record: JobRecord): Promise<void> {
    const { afterCrash } = this.options;
    const lock = await this.job.tryLock();
    if (!lock) {
      this.lookLater();
      return;
    }
    const { tick, attempt } = record;
    if (attempt <= afterCrash) {
      const begun = await this.job.record(lock, seen, { tick, attempt: attempt + 1 });
      if (begun instanceof BegunRun) {
        this.job.publishAbandoned(record, true);
        this.make(begun);
        return;
      }
      await lock.releaseAfterTask(false);
    } else {
      const closed: JobRecord = { ...record, state: 'failed' };
      try {
        const found = await this.job.stored.replace(seen, closed, PATIENCE);
        if (found.record?.run === record.run && found.record.state === 'failed')
          this.job.publishAbandoned(record, false);
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
    const now = this.job.stored.serverTime;
    const tick = schedule.latest(now);
    if (seen.record?.schedule !== schedule.text) {
      await this.#recordBaseline(seen, tick ?? now, schedule);
      return;
    }
    const isMissed = (last: JobRecord | undefined) =>
      tick !== undefined && last?.schedule === schedule.text && tick > last.tick && tick > lastTimeOf(last, now);
    if (tick === undefined || !isMissed(seen.record)) return;
    const age = now - tick;
    // For so long a process that was fired may still begin it.
    const patience = this.job.patience(tick);
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
    const begun = await this.job.begin(tick, isMissed);
    if (begun instanceof BegunRun) {
      events.publish('run-missed', event);
      this.make(begun);
    } else if (begun.skipped !== 'done') this.lookLater();
  }

  /** Nothing is known of runs by this schedule: ticks are missed from now on. */
  async #recordBaseline(seen: Seen, tick: number, { text }: Schedule): Promise<void> {
    const { core } = this.plan;
    // By the clock of this process the server is behind: ticks that have run would be due again when that is mended.
    if (seen.impossibleTick !== undefined && seen.impossibleTick <= core.clock.wallTime() + MOST_AHEAD) {
      this.lookLater();
      return;
    }
    const now = this.job.stored.serverTime;
    const last = seen.record && seen.record.tick >= tick ? seen.record : { tick, attempt: 0 };
    const baseline: JobRecord = {
      ...{ tick: last.tick, attempt: last.attempt, run: core.random.id(), state: 'baseline' },
      ...{ begunAt: now, endedAt: now, instance: core.instance.name, schedule: text },
    };
    const found = await this.job.stored.replace(seen, baseline, PATIENCE);
    if (found.record?.run !== baseline.run) this.#lookIn(0);
  }

  #log(what: string): void {
    this.plan.core.logger.error(`Job "${this.key}" ${what}`);
  }
}
