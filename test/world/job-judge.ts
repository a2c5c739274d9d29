import { parseRecord, type JobRecord } from '../../lib/core/job-record.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { EPOCH } from './machine.js';
import type { PlannedRecipes } from './plan.js';
import type { RedisModel } from './redis-model.js';

/** The key of the job. */
export const JOB = 'job';
const LAYOUT = new KeyLayout('lock');
const LOCK = LAYOUT.lockOf(JOB);
const RECORD = LAYOUT.recordOf(JOB);
const NEARLY_HALF = 0.4;

/** Decides whether each tick of the job is begun once, in order and in time. It reads the record on the server after each command. */
export class JobJudge {
  #text: string | undefined;
  #record: JobRecord | undefined;
  readonly #runs = new Set<string>();
  readonly #begun = new Set<string>();
  /** The ticks whose run has surely ended. */
  readonly #ended = new Set<number>();
  /** Since when the last run is recorded as running, and its lock is free. */
  #abandonedSince: number | undefined;
  #isOver = false;
  /** Since when the job has had no reason to miss a tick. */
  #timelySince = 0;

  constructor(
    private readonly plan: PlannedRecipes,
    /** By how many ms all clocks of the running processes are ahead of the server's, or more. */
    private readonly allAhead: () => number,
    private readonly modelOf: (key: string) => RedisModel,
    private readonly report: (violation: string) => void,
  ) {}

  /** The server has forgotten records, so that a tick may be begun again. */
  lostData(): void {
    this.#text = this.#record = undefined;
    this.#begun.clear();
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
    // After a loss of data, processes write back the last record that they know.
    const isNew = !this.#runs.has(run);
    this.#runs.add(run);
    if (before === undefined) return;
    if (tick < before.tick) this.report(`the job was recorded for ${tick} after ${before.tick}`);
    if (state !== 'running' || !isNew) return;
    if (tick === before.tick && before.state !== 'running' && before.state !== 'baseline') {
      this.report(`the run for ${tick} was begun again, and it had ended`);
    }
    if (tick === before.tick && attempt !== before.attempt + 1) {
      this.report(`the run for ${tick} was begun as attempt ${attempt}, after attempt ${before.attempt}`);
    }
    if (attempt > 1 + this.plan.afterCrash) this.report(`the run for ${tick} was begun ${attempt} times`);
  }

  /** The task of the job begins in this process. Answers its tick, if it is known. */
  begins(process: number): number | undefined {
    const record = this.#record;
    // Otherwise the process has lost its lock or the server its data.
    if (record?.state !== 'running' || record.instance !== `process-${process}`) return undefined;
    const run = `${record.tick}, attempt ${record.attempt}`;
    if (this.#begun.has(run)) this.report(`the task of the job was run twice for ${run}`);
    this.#begun.add(run);
    if (this.#ended.has(record.tick)) this.report(`the task of the job was run again for ${run}, and it had ended`);
    return record.tick;
  }

  /** The run for this tick has ended, and its process could record that. */
  ended(tick: number): void {
    this.#ended.add(tick);
  }

  /** A process has a wrong clock from now on, so it may be fired for no tick that has come. */
  clockStepped(): void {
    this.#timelySince = Infinity;
  }

  /** The scheduler fires no more. */
  end(): void {
    this.#isOver = true;
  }

  /** @param healthySince since when nothing is wrong */
  look(now: number, healthySince: number): void {
    if (this.#isOver) return;
    const { period, lease } = this.plan;
    this.#lookForAbandoned(now, healthySince);
    const last = this.#record === undefined ? 0 : this.#record.tick - EPOCH;
    this.#timelySince = Math.max(this.#timelySince, healthySince + lease);
    // A process runs no tick while its clock is ahead of the server's by half a period, less the time of a round trip.
    if (this.allAhead() > NEARLY_HALF * period) return;
    if (now - Math.max(last, this.#timelySince) <= 4 * period) return;
    this.report(`no tick of the job was begun for ${(now - last).toFixed(0)} ms`);
    this.#timelySince = Infinity;
  }

  #lookForAbandoned(now: number, healthySince: number): void {
    const { lease } = this.plan;
    const isAbandoned = this.#record?.state === 'running' && this.modelOf(LOCK).textAt(LOCK) === undefined;
    this.#abandonedSince = isAbandoned ? (this.#abandonedSince ?? now) : undefined;
    if (now - Math.max(this.#abandonedSince ?? now, healthySince) <= 3 * lease + 1_000) return;
    this.report('the job was abandoned, and no process has found that');
    this.#abandonedSince = Infinity;
  }
}
