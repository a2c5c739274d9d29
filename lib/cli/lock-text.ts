import ms from 'ms';
import type { LockInfo } from '../api/lock-info.js';
import { printable } from '../api/printable.js';
import { systemClock } from '../core/toolkit/clock.js';
import { tableLines } from './table.js';

/** The maximum number of instance names in a table row. */
const MOST_NAMES = 3;

export const COLUMNS = ['KEY', 'STATE', 'HELD BY', 'SINCE', 'ENDS IN', 'WAITING', 'TOKEN'] as const;
export const UNKNOWN = '-';

/** Formats a lock as a row below {@link COLUMNS}. */
export function rowOf(lock: LockInfo): string[] {
  const { key, instances, since, expiresIn, waiters, fencingToken } = lock;
  const names = instances.slice(0, MOST_NAMES).map(printable);
  if (instances.length > MOST_NAMES) names.push(`and ${instances.length - MOST_NAMES} more`);
  return [
    printable(key),
    stateOf(lock),
    names.join(', ') || UNKNOWN,
    since ? timeText(since) : UNKNOWN,
    expiresIn === null ? UNKNOWN : ms(Math.max(0, Math.round(expiresIn))),
    String(waiters ?? UNKNOWN),
    String(fencingToken ?? UNKNOWN),
  ];
}

/** All details of a lock, one a line. */
export function detailsText(lock: LockInfo): string {
  return `${tableLines(detailsOf(lock, systemClock.wallTime())).join('\n')}\n`;
}

/** All details of a lock, as name-value pairs. */
export function detailsOf(lock: LockInfo, now: number): string[][] {
  const { key, instances, since, expiresIn, waiters, fencingToken } = lock;
  const age = since && now > since.getTime() ? ` (${ms(now - since.getTime())} ago)` : '';
  return [
    ['key', printable(key)],
    ['state', lock.state === 'retained' ? 'retained: released, but kept locked by minHold' : stateOf(lock)],
    ['held by', instances.map(printable).join(', ') || (lock.state === 'held' ? 'unknown' : 'no process')],
    ['since', since ? timeText(since) + age : 'unknown'],
    ['ends', endText(lock.state, expiresIn)],
    ['waiting', waiters === null ? 'unknown' : String(waiters)],
    ['token', fencingToken === null ? 'none' : String(fencingToken)],
  ];
}

function stateOf({ state, mode, holders, used, limit }: LockInfo): string {
  if (state === 'retained') return state;
  if (mode === 'limited') return `held, ${used ?? '?'} of ${limit ?? '?'}`;
  return mode === 'shared' ? `shared by ${holders}` : state;
}

function endText(state: LockInfo['state'], expiresIn: number | null): string {
  if (expiresIn === null) return "with the holder's session";
  return `in ${ms(Math.max(0, Math.round(expiresIn)))}${state === 'held' ? ', unless it is renewed' : ''}`;
}

export function timeText(time: Date): string {
  return time
    .toISOString()
    .replace('T', ' ')
    .replace(/\.\d+Z$/, 'Z');
}
