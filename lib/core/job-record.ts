import type { JobState, ListedJob } from '../api/lock-info.js';
import { isInstanceName, isShortAscii } from '../api/printable.js';

/** The last run of a job, as the backend keeps it. All times in ms since 1970; all but `tick` by the clock of the server. */
export interface JobRecord {
  /** The time at which it was due. */
  readonly tick: number;
  /** An id of its own. Not that of its lock, which must not be readable. */
  readonly run: string;
  readonly state: JobState;
  readonly startedAt: number;
  readonly endedAt: number | null;
  /** The name of the application that began it. */
  readonly instance: string;
  /** How often the tick was begun; 0 for a baseline of a tick that was never begun. */
  readonly attempt: number;
  /** The text of the schedule, or `null` for a due time that the caller has given. */
  readonly schedule: string | null;
}

const VERSION = 1;
/** How many characters the text of a schedule may have: a list of each second, minute, hour and day has about 500. */
const MOST_SCHEDULE = 1_000;
/** A `Date` has no later time, in ms. */
const LAST_TIME = 8.64e15;
const STATES: readonly unknown[] = ['baseline', 'running', 'ended', 'failed'] satisfies JobState[];

export function recordText(record: JobRecord): string {
  return JSON.stringify({ v: VERSION, ...record });
}

/** The record of a text; `damaged` for what is none, and `newer` for one that a later version of this package has written. */
export function parseRecord(text: string): JobRecord | 'damaged' | 'newer' {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return 'damaged';
  }
  if (typeof value !== 'object' || value === null) return 'damaged';
  const { v, tick, run, state, startedAt, endedAt, instance, attempt, schedule } = value as Record<string, unknown>;
  if (typeof v === 'number' && v > VERSION) return 'newer';
  const isWhole =
    v === VERSION &&
    [tick, startedAt, endedAt ?? 0, attempt].every(isTime) &&
    typeof run === 'string' &&
    isShortAscii(schedule ?? 'none', MOST_SCHEDULE) &&
    isInstanceName(instance) &&
    STATES.includes(state);
  return isWhole ? ({ tick, run, state, startedAt, endedAt, instance, attempt, schedule } as JobRecord) : 'damaged';
}

/** The job of a record. @param nextTick in ms since 1970, if this application schedules the job */
export function listedJob(key: string, provider: string, record: JobRecord, nextTick?: number): ListedJob {
  const { tick, startedAt, endedAt, state, instance, attempt, schedule } = record;
  return {
    ...{ key, provider, state, instance, attempt, schedule },
    tick: new Date(tick),
    startedAt: new Date(startedAt),
    endedAt: endedAt === null ? null : new Date(endedAt),
    nextTick: nextTick === undefined ? null : new Date(nextTick),
  };
}

/** In ms, with fractions: a server counts in µs. */
function isTime(value: unknown): boolean {
  return Number.isFinite(value) && Math.abs(Number(value)) <= LAST_TIME;
}
