import { uptime } from 'node:os';
import type { Clock } from '../../api/clock.js';

/** The clocks of this machine. `performance.now()` is CLOCK_MONOTONIC on Linux; `os.uptime()` counts suspended time too. */
export const systemClock: Clock = {
  now: () => performance.now(),
  uptime: () => uptime() * 1000,
  wallTime: () => Date.now(),
  setTimer: (callback, delay, keepAlive = false) => {
    const timer = setTimeout(callback, delay);
    return keepAlive ? timer : timer.unref();
  },
  clearTimer: (timer) => {
    clearTimeout(timer as NodeJS.Timeout);
  },
};
