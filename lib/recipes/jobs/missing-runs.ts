import { errorText } from '../../api/cause.js';
import type { Timer } from '../../api/clock.js';
import type { JobRecord } from '../../core/job-record.js';
import { leaveOnAbort } from '../../core/toolkit/abort-listeners.js';
import { isUnavailable } from '../../core/toolkit/retryable.js';
import { jitter } from '../../core/toolkit/timing.js';
import { halfPeriod, RECORD_TIMEOUT } from './job.js';
import { lastTimeOf, MOST_AHEAD, type Seen } from './record.js';
import type { Schedule } from './schedule.js';
import type { ScheduledJob } from './scheduled-job.js';

/** How long other processes may take after a recovery to write back data that the backend has lost, in ms. */
const AFTER_RECOVERY = 5_000;

/** Which missed and abandoned runs a job makes up for. `catchUp` is in ms. */
export interface MissingRunOptions {
  readonly catchUp: number | undefined;
  readonly afterCrash: number;
}

/**
 * Until the application stops, finds and runs a job's ticks that no process has started (`catchUp`) and its runs whose
 * process has crashed (`afterCrash`), as the options specify.
 */
export class MissingRuns {
  /** Whether the scheduler currently fires the job: a job that is stopped or hasn't started yet is not run. */
  #isFired = () => true;
  #timer: Timer | undefined;
  #lookAt = 0;
  /** The latest tick that this process reached before the server's clock. */
  #awaited = -Infinity;
  #notBefore = -Infinity;
  /** Only one search runs at a time. */
  #lastLook: Promise<void> = Promise.resolve();
  /** The last tick reported as missed and too old to run. */
  #tooOld: number | undefined;

  constructor(
    private readonly job: ScheduledJob,
    private readonly options: MissingRunOptions,
  ) {}

  /** Checks now and after each event that may leave a run missing. Call this once. */
  start(isFired: () => boolean): void {
    this.#isFired = isFired;
    const { manager, plan } = this.job;
    leaveOnAbort(manager.stopping, {
      leave: () => {
        this.#cancelLook();
      },
    });
    plan.core.observe(({ type }) => {
      if (type === 'recovered') this.#onRecovered();
    });
    this.#lookIn(0);
  }

  /**
   * Checks again after one lease, which is how long a crashed process's lock is kept. The delay varies across
   * processes.
   */
  lookLater(): void {
    const { core, settings } = this.job.plan;
    this.#lookIn(jitter(core.random, settings.lease * 1.25, 0.2));
  }

  /**
   * All processes first write back any tick that the backend has lost, so none of them repeats an earlier run.
   */
  #onRecovered(): void {
    const { manager, stored, plan } = this.job;
    if (manager.stopping.aborted) return;
    this.#cancelLook();
    this.#notBefore = plan.core.clock.now() + AFTER_RECOVERY;
    this.#inOrder(async () => {
      await stored.restore(await stored.read(RECORD_TIMEOUT), RECORD_TIMEOUT);
    });
    this.#lookIn(0);
  }

  /**
   * Checks when the server's clock reaches `tick`, and each tick before it, because this process may be several ticks
   * ahead.
   */
  awaitTick(tick: number): void {
    this.#awaited = Math.max(this.#awaited, tick);
    this.#awaitTickAfter(this.job.stored.serverTime);
  }

  #awaitTickAfter(time: number): void {
    const { job } = this;
    const tick = job.nextTick(time);
    if (tick !== undefined && tick <= this.#awaited) this.#lookIn(Math.max(0, tick - job.stored.serverTime));
  }

  /** Checks after `delay` ms, or earlier if a check is already scheduled. */
  #lookIn(delay: number): void {
    const { manager, plan } = this.job;
    const { clock } = plan.core;
    if (manager.stopping.aborted) return;
    const at = Math.max(clock.now() + delay, this.#notBefore);
    if (this.#timer !== undefined && this.#lookAt <= at) return;
    this.#cancelLook();
    this.#lookAt = at;
    const onTime = () => {
      this.#timer = undefined;
      this.#inOrder(async () => {
        const { serverTime } = this.job.stored;
        await this.#look();
        // This check may have been earlier than that of an awaited tick, which was then not scheduled, or earlier than
        // the tick itself: the response may have corrected the server's time.
        this.#awaitTickAfter(Math.min(serverTime, this.job.stored.serverTime));
      });
    };
    this.#timer = clock.setTimer(onTime, at - clock.now());
  }

  #cancelLook(): void {
    if (this.#timer !== undefined) this.job.plan.core.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }

  #inOrder(work: () => Promise<void>): void {
    this.#lastLook = this.#lastLook.then(work).catch((error: unknown) => {
      if (this.job.manager.stopping.aborted) return;
      if (isUnavailable(error)) this.lookLater();
      else this.job.logError(`cannot check for missed and abandoned runs: ${errorText(error)}`);
    });
  }

  async #look(): Promise<void> {
    const { stored, plan } = this.job;
    // No event is emitted when the scheduler starts the job again.
    if (!this.#isFired()) {
      this.lookLater();
      return;
    }
    const found = await stored.read(RECORD_TIMEOUT);
    // If nothing is stored, an operator may have deleted the record. If the record is earlier, a run's end could not be
    // written.
    const seen = found.record ? await stored.restore(found, RECORD_TIMEOUT) : found;
    const schedule = this.job.schedule();
    // The backend has recovered in the meantime.
    if (plan.core.clock.now() < this.#notBefore) this.#lookIn(0);
    else if (seen.record?.state === 'running') await this.#lookForAbandoned(seen, seen.record, schedule);
    else if (this.options.catchUp !== undefined && schedule)
      await this.#lookForMissed(seen, schedule, this.options.catchUp);
  }

  /**
   * A run is abandoned if it is recorded as running and its lock is free: a run records its end before it releases the
   * lock.
   */
  async #lookForAbandoned(seen: Seen, record: JobRecord, schedule: Schedule | undefined): Promise<void> {
    const { job } = this;
    const lock = await job.tryLock();
    if (!lock) {
      this.lookLater();
      return;
    }
    if (record.attempt <= this.options.afterCrash) {
      const started = await job.startUnder(lock, seen, record.tick, schedule);
      if ('lock' in started) {
        job.handOver(started);
        return;
      }
      await lock.releaseAfterTask(false);
    } else {
      const failed: JobRecord = { ...record, state: 'failed' };
      try {
        const found = await job.stored.replace(seen, failed, RECORD_TIMEOUT);
        if (found.record === failed) job.reportAbandoned(record, false);
      } finally {
        await lock.releaseAfterTask(false);
      }
    }
    // Check again for newly missed runs and for changes recorded by another process.
    this.#lookIn(0);
  }

  async #lookForMissed(seen: Seen, schedule: Schedule, catchUp: number): Promise<void> {
    const { job } = this;
    const { events, name } = job.plan.core;
    const now = job.stored.serverTime;
    const tick = schedule.latest(now);
    const isMissed = (last: JobRecord | undefined) =>
      tick !== undefined && last?.schedule === schedule.text && tick > last.tick && tick > lastTimeOf(last, now);
    const isNew = seen.record?.schedule !== schedule.text;
    if (!isNew && !isMissed(seen.record)) return;
    const age = now - (tick ?? -Infinity);
    // Until then, a process whose scheduler fired may still start the tick, and a baseline would make it skip it.
    const timeout = tick === undefined ? 0 : Math.min(halfPeriod(tick, schedule), RECORD_TIMEOUT);
    if (age < timeout) {
      this.#lookIn(timeout - age);
      return;
    }
    if (isNew || tick === undefined) {
      await this.#recordBaseline(seen, tick ?? now, schedule);
      return;
    }
    const event = { key: job.key, provider: name, tick: new Date(tick), schedule: schedule.text };
    if (age > catchUp) {
      if (this.#tooOld !== tick) events.publish('run-missed', event);
      this.#tooOld = tick;
      return;
    }
    const started = await job.startTick(tick, schedule, isMissed);
    if ('lock' in started) {
      events.publish('run-missed', event);
      job.handOver(started);
    } else if (started.skipped !== 'done') this.lookLater();
  }

  /** Counts ticks as missed only from now on, because nothing is known about earlier runs on this schedule. */
  async #recordBaseline(seen: Seen, tick: number, { text }: Schedule): Promise<void> {
    const { stored, plan } = this.job;
    const { core } = plan;
    // According to this process's clock, the server's clock is behind: ticks that have run would be due again once it
    // is corrected.
    if (seen.impossibleTick !== undefined && seen.impossibleTick <= core.clock.wallTime() + MOST_AHEAD) {
      this.lookLater();
      return;
    }
    const now = stored.serverTime;
    const last = seen.record && seen.record.tick >= tick ? seen.record : { tick, attempt: 0 };
    const baseline: JobRecord = {
      ...{ tick: last.tick, attempt: last.attempt, run: core.random.id(), state: 'baseline' },
      ...{ startedAt: now, endedAt: now, instance: core.instance.name, schedule: text },
    };
    const found = await stored.replace(seen, baseline, RECORD_TIMEOUT);
    if (found.record !== baseline) this.#lookIn(0);
  }
}
