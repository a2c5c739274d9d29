import { parseRecord, type JobRecord } from '../../lib/core/job-record.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { EPOCH } from './machine.js';
import type { PlannedRecipes } from './plan.js';
import type { RedisModel } from './redis-model.js';

/** The job's key. */
export const JOB = 'job';
const LAYOUT = new KeyLayout('lock');
const LOCK = LAYOUT.lockOf(JOB);
const RECORD = LAYOUT.recordOf(JOB);
const NEARLY_HALF = 0.4;

/**
 * Decides whether each tick of the job starts once, in order, and on time. It reads the record on the server after each
 * command.
 */
export class JobJudge {
  #text: string | undefined;
  #record: JobRecord | undefined;
  readonly #runs = new Set<string>();
  readonly #started = new Set<string>();
  /** The ticks whose run has certainly ended. */
  readonly #ended = new Set<number>();
  /** Since when the last run has been recorded as running while its lock is free. */
  #abandonedSince: number | undefined;
  #isOver = false;
  /** Since when the job has had no excuse to miss a tick. */
  #timelySince = 0;

  constructor(
    private readonly plan: PlannedRecipes,
    /** The minimum by which the clocks of all running processes are ahead of the server's clock, in ms. */
    private readonly allAhead: () => number,
    private readonly modelOf: (key: string) => RedisModel,
    private readonly report: (violation: string) => void,
  ) {}

  /** The server has lost records, so a tick may start again. */
  lostData(): void {
    this.#text = this.#record = undefined;
    this.#started.clear();
    this.#ended.clear();
  }

  /** The server has executed a command. */
  executed(): void {
    const text = this.modelOf(RECORD).textAt(RECORD);
    if (text === this.#text) return;
    this.#text = text;
    const parsed = text === undefined ? undefined : parseRecord(text);
    if (typeof parsed !== 'object') return;
    const before = this.#record;
    this.#record = parsed;
    const { tick, attempt, state, run } = parsed;
    // After a loss of data, processes write back the last record they know.
    const isNew = !this.#runs.has(run);
    this.#runs.add(run);
    if (before === undefined) return;
    if (tick < before.tick) this.report(`the job was recorded for ${tick} after ${before.tick}`);
    if (state !== 'running' || !isNew) return;
    if (tick === before.tick && before.state !== 'running' && before.state !== 'baseline') {
      this.report(`the run for ${tick} was started again, although it had ended`);
    }
    if (tick === before.tick && attempt !== before.attempt + 1) {
      this.report(`the run for ${tick} was started as attempt ${attempt}, after attempt ${before.attempt}`);
    }
    if (attempt > 1 + this.plan.afterCrash) this.report(`the run for ${tick} was started ${attempt} times`);
  }

  /** The job's task starts in this process. Returns its tick, if it is known. */
  begins(process: number): number | undefined {
    const record = this.#record;
    // Otherwise, the process has lost its lock or the server its data.
    if (record?.state !== 'running' || record.instance !== `process-${process}`) return undefined;
    const run = `${record.tick}, attempt ${record.attempt}`;
    if (this.#started.has(run)) this.report(`the job's task ran twice for ${run}`);
    this.#started.add(run);
    if (this.#ended.has(record.tick)) this.report(`the job's task ran again for ${run}, although it had ended`);
    return record.tick;
  }

  /** The run for this tick has ended, and its process was able to record that. */
  ended(tick: number): void {
    this.#ended.add(tick);
  }

  /** From now on, a process has a wrong clock, so its scheduler may not fire for a tick that is due. */
  clockStepped(): void {
    this.#timelySince = Infinity;
  }

  /** The scheduler no longer fires. */
  end(): void {
    this.#isOver = true;
  }

  /** @param healthySince since when there have been no faults */
  look(now: number, healthySince: number): void {
    if (this.#isOver) return;
    const { period, lease } = this.plan;
    this.#lookForAbandoned(now, healthySince);
    const last = this.#record === undefined ? 0 : this.#record.tick - EPOCH;
    this.#timelySince = Math.max(this.#timelySince, healthySince + lease);
    // A process runs no tick while its clock is ahead of the server's by half a period, less the time of a round trip.
    if (this.allAhead() > NEARLY_HALF * period) return;
    if (now - Math.max(last, this.#timelySince) <= 4 * period) return;
    this.report(`no tick of the job was started for ${(now - last).toFixed(0)} ms`);
    this.#timelySince = Infinity;
  }

  #lookForAbandoned(now: number, healthySince: number): void {
    const { lease } = this.plan;
    const isAbandoned = this.#record?.state === 'running' && this.modelOf(LOCK).textAt(LOCK) === undefined;
    this.#abandonedSince = isAbandoned ? (this.#abandonedSince ?? now) : undefined;
    if (now - Math.max(this.#abandonedSince ?? now, healthySince) <= 3 * lease + 1_000) return;
    this.report('the job was abandoned, and no process has noticed');
    this.#abandonedSince = Infinity;
  }
}
