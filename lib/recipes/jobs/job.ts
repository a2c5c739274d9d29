import { AsyncLocalStorage } from 'node:async_hooks';
import { isBusy } from '../../api/is-busy.js';
import type { SkipReason } from '../../api/lock-events.js';
import type { JobRecord } from '../../core/job-record.js';
import type { LockPlan } from '../../core/plan/lock-plan.js';
import type { GrantedLock } from '../../core/hold/granted-lock.js';
import type { LockManager } from '../../core/lock-manager.js';
import type { ProviderCore } from '../../core/provider-core.js';
import { instanceIdOf } from '../../core/toolkit/instance-ids.js';
import { backOff, pause } from '../../core/toolkit/timing.js';
import { JobRecordClient, MOST_AHEAD, type Seen } from './record.js';
import type { Schedule } from './schedule.js';

/** How long a request for a record is retried while the backend does not respond, in ms. */
export const RECORD_TIMEOUT = 5_000;
/** How long recording a run's end is retried, in ms, with its lock still held. */
const END_TIMEOUT = 1_000;
/** The pause between two polls of a busy lock, in ms. */
const POLL = { first: 50, most: 250 };
const WARNED_EVERY = 3_600_000;
/** Due times of a key that differ by less than this, in ms, are meant to be the same. */
const ONE_DUE = 1_000;

/** When each warning was last logged, for all jobs: they share one clock, and `runOnce()` keys may come from data. */
const warnedOfClock = new WeakMap<ProviderCore, number>();
const warnedOfDues = new WeakMap<ProviderCore, number>();

/** A run, as the code that it executes finds it. */
interface Running {
  readonly run: CurrentRun;
  readonly job: Job;
  readonly lock: GrantedLock;
}

const runs = new AsyncLocalStorage<Running>();

/** A job's run, as its task sees it. */
export interface CurrentRun {
  /** The job's key. */
  readonly key: string;
  /** When the run was due. */
  readonly tick: Date;
  /** How many times this run has been started: with `afterCrash`, more than 1 if a process crashed or lost its lock. */
  readonly attempt: number;
}

/**
 * The run in which the caller is executing: a `@RunOnce` method without `minHold`, or `runOnce()` with `due`.
 * `undefined` outside such a run, or in one started by `LockAdmin.runNow()`, which has no tick.
 *
 * @example `if (currentRun()!.attempt > 1) await this.removeHalfWrittenReport();`
 */
export function currentRun(): CurrentRun | undefined {
  return runs.getStore()?.run;
}

type Task<T> = (lock: GrantedLock) => T | PromiseLike<T>;

/** A run that holds its job's lock. */
export interface Run {
  readonly lock: GrantedLock;
  /** Wraps the task so that its end is recorded while the lock is still held. */
  recorded<T>(task: Task<T>): Task<T>;
}

/** Why a tick was not started here, and the record that says so. */
interface Skipped {
  readonly skipped: SkipReason;
  readonly record: JobRecord | undefined;
}

/**
 * One job in this process. It starts each tick that no process has started.
 *
 * The order is: read the record, take the lock without waiting, write the record, run the task, record its end, and
 * release. The lock comes before the record, so a process whose clock is ahead doesn't consume a tick that another
 * process could run.
 */
export class Job {
  readonly stored: JobRecordClient;
  #hasWarnedOfZone = false;

  /**
   * @param plan for a lock with `wait: 0` and no `minHold`
   * @throws LockConfigError for a provider without records
   */
  constructor(
    readonly manager: LockManager,
    readonly key: string,
    readonly plan: LockPlan,
  ) {
    this.stored = new JobRecordClient(plan.core, key);
  }

  /**
   * Starts the tick, unless another process has started it, is starting it now, or is running an earlier one.
   *
   * @param schedule `undefined` if the caller specifies the ticks
   * @param isOpen whether the tick may still be started, according to the record. Default: whether the last tick is
   * earlier
   * @throws LockUnavailableError if the backend does not respond. In that case, the tick may be recorded as started
   */
  async startTick(
    tick: number,
    schedule: Schedule | undefined,
    isOpen = (record: JobRecord | undefined) => record === undefined || record.tick < tick,
  ): Promise<Run | Skipped> {
    const { stored, plan, manager } = this;
    const { clock, random } = plan.core;
    const half = halfPeriod(tick, schedule);
    const timeout = Math.min(half, RECORD_TIMEOUT);
    const deadline = clock.now() + timeout;
    let seen = await stored.read(timeout);
    let lock: GrantedLock | undefined;
    for (let round = 0; ; round += 1) {
      const { record } = seen;
      this.#checkZone(record, schedule);
      this.#checkDue(tick, record, schedule);
      const skipped = !isOpen(record) ? 'done' : this.#isAhead(tick, Math.min(half, MOST_AHEAD)) ? 'clock' : undefined;
      if (skipped) {
        await lock?.releaseAfterTask(false);
        return { skipped, record };
      }
      const isLast = clock.now() >= deadline || manager.stopping.aborted;
      // A run records its end before it releases the lock, so the lock isn't requested until then, except by the first
      // and last polls, because the run may be abandoned.
      if (round === 0 || isLast || record?.state !== 'running') lock ??= await this.tryLock();
      if (lock) {
        const found = await this.startUnder(lock, seen, tick, schedule);
        if ('lock' in found) return found;
        seen = found;
        continue;
      }
      if (isLast) return { skipped: record?.state === 'running' ? 'overlap' : 'busy', record };
      await pause(clock, backOff(random, round, POLL), manager.stopping, true);
      seen = await stored.read(timeout);
    }
  }

  /** Whether the caller is executing in a run of this job, whose tick therefore counts as started. */
  isRunningAround(): boolean {
    const { job, lock } = runs.getStore() ?? {};
    return job?.key === this.key && job.plan.core === this.plan.core && lock?.isOpen === true;
  }

  /** Takes the lock if it is free. */
  async tryLock(): Promise<GrantedLock | undefined> {
    try {
      return await this.manager.acquirePlanned(this.plan, this.key);
    } catch (error) {
      if (isBusy(error)) return undefined;
      throw error;
    }
  }

  /**
   * Starts a tick under the job's lock, or its next attempt if an earlier run's process is gone.
   * If the record has changed since it was read, nothing starts, and the promise resolves to the current record.
   *
   * @throws like {@link startTick}; the lock is then released
   */
  async startUnder(lock: GrantedLock, seen: Seen, tick: number, schedule: Schedule | undefined): Promise<Run | Seen> {
    const { core } = this.plan;
    const before = seen.record;
    const attempt = before?.tick === tick ? before.attempt + 1 : 1;
    const record: JobRecord = {
      ...{ tick, run: core.random.id(), state: 'running', startedAt: this.stored.serverTime, endedAt: null },
      ...{ instance: core.instance.name, attempt, schedule: schedule?.text ?? null },
    };
    let found: Seen;
    try {
      found = await this.stored.replace(seen, record, RECORD_TIMEOUT);
    } catch (error) {
      await lock.releaseAfterTask(true);
      throw error;
    }
    if (found.record !== record) return found;
    if (before?.state === 'running') this.reportAbandoned(before, attempt > 1);
    return { lock, recorded: (task) => this.#recorded(task, found, record) };
  }

  /** Reports a run that is recorded as running although this process holds its lock. */
  reportAbandoned({ tick, instance, startedAt, attempt }: JobRecord, again: boolean): void {
    const { events, name, logger } = this.plan.core;
    const times = { tick: new Date(tick), startedAt: new Date(startedAt) };
    events.publish('run-abandoned', { key: this.key, provider: name, ...times, instance, again });
    if (!again) return;
    logger.warn(
      `Job "${this.key}" runs again for ${times.tick.toISOString()}, attempt ${attempt + 1}: instance "${instance}" started it at ${times.startedAt.toISOString()} but did not finish. Find out why that instance stopped or lost its lock.`,
    );
  }

  #recorded<T>(task: Task<T>, seen: Seen, record: JobRecord): Task<T> {
    return async (lock) => {
      let state: JobRecord['state'] = 'failed';
      try {
        const run: CurrentRun = { key: this.key, tick: new Date(record.tick), attempt: record.attempt };
        const value = await runs.run({ run, job: this, lock }, () => task(lock));
        state = 'ended';
        return value;
      } finally {
        await this.#recordEnd(seen, { ...record, state, endedAt: this.stored.serverTime });
      }
    };
  }

  /**
   * Leaves a later record alone: it belongs to a later run, so the lock was lost. An earlier or missing record shows
   * that the backend has lost data.
   */
  async #recordEnd(seen: Seen, ended: JobRecord): Promise<void> {
    const { core } = this.plan;
    try {
      await this.stored.restore(seen, END_TIMEOUT, ended);
    } catch {
      core.logger.warn(
        `Job "${this.key}" ended, but this was not recorded, because lock provider "${core.name}" did not accept it within ${END_TIMEOUT} ms. Unless this instance can record it later, another will treat the run as abandoned: check the provider's server.`,
      );
    }
  }

  #isAhead(tick: number, most: number): boolean {
    const ahead = tick - this.stored.serverTime;
    if (ahead <= most) return false;
    this.#warnHourly(
      warnedOfClock,
      `Job "${this.key}" was not run for ${new Date(tick).toISOString()}: that is ${Math.round(ahead)} ms ahead of the server clock for lock provider "${this.plan.core.name}". Correct the clock on this machine, or set "due" to a time in the past.`,
    );
    return true;
  }

  /**
   * Warns if instances pass the time of the call as the due time, which makes each call its own run.
   */
  #checkDue(tick: number, record: JobRecord | undefined, schedule: Schedule | undefined): void {
    if (record === undefined || record.schedule !== null || schedule) return;
    const apart = Math.abs(tick - record.tick);
    const { random } = this.plan.core;
    if (apart === 0 || apart >= ONE_DUE || instanceIdOf(record.run) === instanceIdOf(random.id())) return;
    this.#warnHourly(
      warnedOfDues,
      `Two instances passed due times for job "${this.key}" that are ${apart} ms apart, so they count as two runs. Set "due" to the planned time (the same in all instances), not the time of the call, such as new Date().`,
    );
  }

  #warnHourly(warned: WeakMap<ProviderCore, number>, message: string): void {
    const { core } = this.plan;
    const now = core.clock.now();
    if (now - (warned.get(core) ?? -Infinity) < WARNED_EVERY) return;
    warned.set(core, now);
    core.logger.warn(`${message} (Warned once an hour.)`);
  }

  /** Warns if instances use the same expression in two time zones, and therefore different ticks. */
  #checkZone(record: JobRecord | undefined, schedule: Schedule | undefined): void {
    const own = schedule?.text;
    const other = record?.schedule;
    if (this.#hasWarnedOfZone || !own || !other || own === other || expressionOf(own) !== expressionOf(other)) return;
    this.#hasWarnedOfZone = true;
    this.plan.core.logger.warn(
      `Job "${this.key}" is scheduled here as ${own}, but instance "${record.instance}" recorded it as ${other}. Set "timeZone" in @Cron so all instances have the same ticks. (Warned once.)`,
    );
  }
}

/**
 * The longest time a process waits for another to start the same tick, in ms: half the time until the
 * next tick.
 */
export function halfPeriod(tick: number, schedule: Schedule | undefined): number {
  return ((schedule?.next(tick) ?? Infinity) - tick) / 2;
}

function expressionOf(schedule: string): string {
  return schedule.slice(0, schedule.lastIndexOf(' ('));
}
