import { isBusy } from '../../api/is-busy.js';
import type { SkipReason } from '../../api/lock-events.js';
import { type JobRecord, MOST_AHEAD, recordText } from '../../core/job-record.js';
import type { LockPlan } from '../../core/plan/lock-plan.js';
import type { GrantedLock } from '../../core/hold/granted-lock.js';
import { runGuarded } from '../../core/hold/guarded-task.js';
import type { LockManager } from '../../core/lock-manager.js';
import type { ProviderCore } from '../../core/provider-core.js';
import type { Schedule } from '../../core/schedule.js';
import { instanceIdOf } from '../../core/toolkit/instance-ids.js';
import { backOff, pause } from '../../core/toolkit/timing.js';
import { JobRecordClient, type Seen } from './job-record-client.js';

/** For how many ms a record that has to be written is asked for again while the backend does not answer. */
export const PATIENCE = 5_000;
/** The same for the end of a run: its lock is kept meanwhile. */
const PATIENCE_AT_END = 1_000;
/** Between two looks at a busy lock, in ms. */
const LOOK = { first: 50, most: 250 };
const WARNED_EVERY = 3_600_000;

/** Due times of one key that are less apart than this are taken for one, in ms. */
const ONE_DUE = 1_000;

/** When a warning was given last: there is one clock for all jobs, and keys of `runOnce()` may come from data. */
const warnedOfClock = new WeakMap<ProviderCore, number>();
const warnedOfDues = new WeakMap<ProviderCore, number>();

/** A tick that was not begun here, why, and the record that says so. */
export interface NotBegun {
  readonly skipped: SkipReason;
  readonly record: JobRecord | undefined;
}

/** Whether a tick may be begun after what is recorded. */
type IsOpen = (record: JobRecord | undefined) => boolean;

/**
 * One job of this process: begins each tick that no process has begun.
 *
 * The order is: read the record, take the lock without waiting, write the record, run the task, write its end, release. The lock comes before the record, so
 * a process whose clock is ahead consumes no tick that another process could run.
 */
export class Job {
  readonly stored: JobRecordClient;
  #hasWarnedOfZone = false;

  /**
   * @param plan of a lock that is not waited for, and not kept after its release
   * @param schedule gives none where callers give the ticks
   * @throws LockConfigError for a provider without records
   */
  constructor(
    private readonly manager: LockManager,
    readonly key: string,
    readonly plan: LockPlan,
    private readonly schedule: () => Schedule | undefined,
  ) {
    this.stored = new JobRecordClient(plan.core, key);
  }

  /**
   * Begins the tick, unless another process has begun it, begins it now, or runs an earlier one.
   *
   * @param isOpen whether the tick may still be begun. Default: the last tick is earlier
   * @throws LockUnavailableError where the backend does not answer. The tick may be recorded as begun then
   */
  async begin(
    tick: number,
    isOpen: IsOpen = (record) => record === undefined || record.tick < tick,
  ): Promise<BegunRun | NotBegun> {
    const { clock, random } = this.plan.core;
    const half = this.#periodAfter(tick) / 2;
    const patience = Math.min(half, PATIENCE);
    const until = clock.now() + patience;
    for (let round = 0; ; round += 1) {
      const seen = await this.stored.read(patience);
      const { record } = seen;
      this.#checkZone(record);
      this.#checkDue(tick, record);
      if (!isOpen(record)) return notBegun('done', record);
      if (this.#isAhead(tick, Math.min(half, MOST_AHEAD))) return notBegun('clock', record);
      const isLast = clock.now() >= until || this.manager.stopping.aborted;
      // A run that goes on records its end before it releases, so until then the lock is not asked for. It may be abandoned, at the first and last look.
      const mayBeFree = round === 0 || isLast || record?.state !== 'running';
      const lock = mayBeFree ? await this.tryLock() : undefined;
      if (lock) return await this.#beginUnder(lock, seen, tick, isOpen);
      if (isLast) {
        return notBegun(record?.state === 'running' ? 'overlap' : 'busy', record);
      }
      await pause(clock, backOff(random, round, LOOK), this.manager.stopping, true);
    }
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

  /** Records a run under its lock, unless the record is not as it was seen: then answers what it is. @throws as {@link begin}; the lock is released then */
  async record(
    lock: GrantedLock,
    seen: Seen,
    { tick, attempt }: Pick<JobRecord, 'tick' | 'attempt'>,
  ): Promise<BegunRun | Seen> {
    const { core } = this.plan;
    const next: JobRecord = {
      ...{ tick, run: core.random.id(), state: 'running', begunAt: this.stored.serverTime, endedAt: null },
      ...{ instance: core.instance.name, attempt, schedule: this.schedule()?.text ?? null },
    };
    try {
      const found = await this.stored.replace(seen, next, PATIENCE);
      return found.text === recordText(next) ? new BegunRun(this, lock, found, next) : found;
    } catch (error) {
      await lock.releaseAfterTask(true);
      throw error;
    }
  }

  /** A run whose record says that it runs, and whose lock this process has: nobody runs it. */
  publishAbandoned({ tick, instance, begunAt }: JobRecord, again: boolean): void {
    const { events, name } = this.plan.core;
    const times = { tick: new Date(tick), begunAt: new Date(begunAt) };
    events.publish('run-abandoned', { key: this.key, provider: name, ...times, instance, again });
  }

  /** For how many ms another process that begins the tick is waited for: half of a period, at most 5 s. */
  patience(tick: number): number {
    return Math.min(this.#periodAfter(tick) / 2, PATIENCE);
  }

  async #beginUnder(lock: GrantedLock, before: Seen, tick: number, isOpen: IsOpen): Promise<BegunRun | NotBegun> {
    let seen = before;
    while (isOpen(seen.record)) {
      const found = await this.record(lock, seen, { tick, attempt: 1 });
      if (found instanceof BegunRun) {
        if (seen.record?.state === 'running') this.publishAbandoned(seen.record, false);
        return found;
      }
      seen = found;
      this.#checkDue(tick, seen.record);
    }
    await lock.releaseAfterTask(false);
    return notBegun('done', seen.record);
  }

  #isAhead(tick: number, most: number): boolean {
    const ahead = tick - this.stored.serverTime;
    if (ahead <= most) return false;
    const { core } = this.plan;
    this.#warnHourly(
      warnedOfClock,
      `Job "${this.key}" was not run for ${new Date(tick).toISOString()}: that is ${Math.round(ahead)} ms later than the time of the server of lock provider "${core.name}". Correct the clock of this machine, or set "due" to a time that has come.`,
    );
    return true;
  }

  /** Each instance has read its own clock for the time at which the run was due, so that each call is a run of its own. */
  #checkDue(tick: number, record: JobRecord | undefined): void {
    if (record === undefined || record.schedule !== null || this.schedule()) return;
    const apart = Math.abs(tick - record.tick);
    const { core } = this.plan;
    if (apart === 0 || apart >= ONE_DUE || instanceIdOf(record.run) === instanceIdOf(core.random.id())) return;
    this.#warnHourly(
      warnedOfDues,
      `Two instances gave due times for job "${this.key}" that are ${apart} ms apart, so they count as two runs. Set "due" to the planned time, the same in all instances, not to the time of the call, such as new Date().`,
    );
  }

  #warnHourly(warned: WeakMap<ProviderCore, number>, message: string): void {
    const { core } = this.plan;
    const now = core.clock.now();
    if (now - (warned.get(core) ?? -Infinity) < WARNED_EVERY) return;
    warned.set(core, now);
    core.logger.warn(`${message} (Warned once an hour.)`);
  }

  /** One expression in two zones: an instance has another zone than the others, and so other ticks. */
  #checkZone(record: JobRecord | undefined): void {
    const own = this.schedule()?.text;
    const other = record?.schedule;
    if (this.#hasWarnedOfZone || !own || !other || own === other || expressionOf(own) !== expressionOf(other)) return;
    this.#hasWarnedOfZone = true;
    this.plan.core.logger.warn(
      `Job "${this.key}" is scheduled here as ${own}, but instance "${record.instance}" recorded it as ${other}. Set "timeZone" in @Cron, so that all instances have the same ticks. (Warned once.)`,
    );
  }

  #periodAfter(tick: number): number {
    return (this.schedule()?.next(tick) ?? Infinity) - tick;
  }
}

/** A run under the lock of a job. */
type Task<T> = (lock: GrantedLock) => T | PromiseLike<T>;

/** A run of a job that has its lock. */
export interface Run {
  readonly lock: GrantedLock;
  /** The task, with what is to be written at its end, while the lock is still held. */
  recorded<T>(task: Task<T>): Task<T>;
}

/** A run that is recorded as running. */
export class BegunRun implements Run {
  constructor(
    private readonly job: Job,
    readonly lock: GrantedLock,
    private readonly seen: Seen,
    private readonly record: JobRecord,
  ) {}

  /** Runs the task, records its end and releases the lock. @throws what `withLock()` throws */
  perform<T>(task: Task<T>): Promise<T> {
    return runGuarded(this.lock, this.recorded(task), this.job.plan.settings.onLost);
  }

  recorded<T>(task: Task<T>): Task<T> {
    return async (lock) => {
      let state: JobRecord['state'] = 'failed';
      try {
        const value = await task(lock);
        state = 'ended';
        return value;
      } finally {
        await this.#end(state);
      }
    };
  }

  /** A later record belongs to a later run: the lock was lost. An earlier one, or none, shows that the backend has lost data. */
  async #end(state: JobRecord['state']): Promise<void> {
    const { stored, plan, key } = this.job;
    const next = { ...this.record, state, endedAt: stored.serverTime };
    try {
      await stored.conclude(this.seen, next, PATIENCE_AT_END);
    } catch {
      plan.core.logger.warn(
        `The end of a run of job "${key}" was not recorded, because lock provider "${plan.core.name}" did not accept it within ${PATIENCE_AT_END} ms. Unless this instance can record it later, another one treats the run as abandoned: check the provider's server.`,
      );
    }
  }
}

function expressionOf(schedule: string): string {
  return schedule.slice(0, schedule.lastIndexOf(' ('));
}

function notBegun(skipped: SkipReason, record: JobRecord | undefined): NotBegun {
  return { skipped, record };
}
