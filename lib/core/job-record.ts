import type { JobState, ListedJob } from '../api/lock-info.js';
import { isInstanceName, isShortAscii } from '../api/printable.js';

/**
 * A job's last run, as stored in the backend. Times are in ms since 1970. All except `tick` come from the server's
 * clock.
 */
export interface JobRecord {
  /** When the job was due. */
  readonly tick: number;
  /** A random id for the run. This isn't the lock's holder id, which must stay secret. */
  readonly run: string;
  readonly state: JobState;
  readonly startedAt: number;
  readonly endedAt: number | null;
  /** The module option `instance` of the application that started the run. */
  readonly instance: string;
  /** How many times the tick was started; 0 for a baseline, whose tick was never started. */
  readonly attempt: number;
  /** The job's cron expression and time zone, or `null` for a call with `due`. */
  readonly schedule: string | null;
}

const VERSION = 1;
/**
 * The maximum length of a schedule. An expression that lists every second, minute, hour, and day has about 500
 * characters.
 */
const MAX_SCHEDULE_LENGTH = 1_000;
/** The latest time that a `Date` can represent. */
const MAX_TIME = 8.64e15;
const STATES: readonly unknown[] = ['baseline', 'running', 'ended', 'failed'] satisfies JobState[];

export function recordText(record: JobRecord): string {
  return JSON.stringify({ v: VERSION, ...record });
}

/** Parses a record. `newer`: a later version of this package wrote it. */
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
    isShortAscii(schedule ?? 'none', MAX_SCHEDULE_LENGTH) &&
    isInstanceName(instance) &&
    STATES.includes(state);
  return isWhole ? ({ tick, run, state, startedAt, endedAt, instance, attempt, schedule } as JobRecord) : 'damaged';
}

/** Converts a record for `LockAdmin.jobs()`. @param nextTick in ms since 1970, if this application schedules the job */
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

/** Allows fractions of a millisecond, because servers measure time in µs. */
function isTime(value: unknown): boolean {
  return Number.isFinite(value) && Math.abs(Number(value)) <= MAX_TIME;
}
