import { uptime } from 'node:os';
import type { Clock } from '../../api/clock.js';
import { monotonicNow } from './real-timers.js';
import { Timers } from './timers.js';

/**
 * How long an uptime reading is cached. A reading takes 11 µs, longer than the rest of an uncontended in-memory lock,
 * and is only accurate to 10 ms anyway.
 */
const UPTIME_CACHE_MS = 10;

let uptimeRead = { uptime: 0, now: -Infinity, wallTime: -Infinity };

/**
 * The uptime, read at most 10 ms ago by both the monotonic and the wall clock. The monotonic clock alone isn't enough:
 * it stops while the machine is suspended, so a reading from just before the suspension would still look fresh after
 * it. The wall clock keeps running, so the cache misses a suspension only if the wall clock is also set back by the
 * suspension's length within those 10 ms.
 */
function recentUptime(): number {
  const now = monotonicNow();
  const wallTime = Date.now();
  if (now - uptimeRead.now >= UPTIME_CACHE_MS || Math.abs(wallTime - uptimeRead.wallTime) >= UPTIME_CACHE_MS) {
    uptimeRead = { uptime: uptime() * 1000, now, wallTime };
  }
  return uptimeRead.uptime;
}

/** The timers of {@link systemClock}. */
export const systemTimers = new Timers();

/**
 * This machine's clocks. On Linux, `performance.now()` is CLOCK_MONOTONIC. `os.uptime()` includes the time spent
 * suspended.
 */
export const systemClock: Clock = {
  now: monotonicNow,
  uptime: recentUptime,
  wallTime: () => Date.now(),
  setTimer: (callback, delay, keepAlive = false) => systemTimers.set(callback, delay, keepAlive),
  clearTimer: (timer) => {
    systemTimers.clear(timer);
  },
};
