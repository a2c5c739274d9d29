import { uptime } from 'node:os';
import type { Clock } from '../../api/clock.js';
import { monotonicNow } from './real-timers.js';
import { Timers } from './timers.js';

/**
 * For how many ms a reading of the time since boot is used again. A reading costs 11 µs, more than all else of an uncontended lock in memory,
 * and counts in steps of 10 ms anyway.
 */
const UPTIME_USED_FOR = 10;

let uptimeRead = { uptime: 0, now: -Infinity, wallTime: -Infinity };

/**
 * The time since boot, as it was at most 10 ms ago by both other clocks. The monotonic clock alone would not do: it stops during a
 * suspension, so a reading from just before one would be used just after it. The wall clock goes on, so that happens only if it is set back
 * by the length of the suspension within these 10 ms.
 */
function recentUptime(): number {
  const now = monotonicNow();
  const wallTime = Date.now();
  if (now - uptimeRead.now >= UPTIME_USED_FOR || Math.abs(wallTime - uptimeRead.wallTime) >= UPTIME_USED_FOR) {
    uptimeRead = { uptime: uptime() * 1000, now, wallTime };
  }
  return uptimeRead.uptime;
}

/** The timers of {@link systemClock}. */
export const systemTimers = new Timers();

/** The clocks of this machine. `performance.now()` is CLOCK_MONOTONIC on Linux; `os.uptime()` counts suspended time too. */
export const systemClock: Clock = {
  now: monotonicNow,
  uptime: recentUptime,
  wallTime: () => Date.now(),
  setTimer: (callback, delay, keepAlive = false) => systemTimers.set(callback, delay, keepAlive),
  clearTimer: (timer) => {
    systemTimers.clear(timer);
  },
};
