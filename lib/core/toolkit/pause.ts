import type { Clock } from '../../api/clock.js';

/** Waits for `delay` ms, or until the signal aborts. */
export function pause(clock: Clock, delay: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
      return;
    }
    const end = () => {
      signal.removeEventListener('abort', end);
      clock.clearTimer(timer);
      resolve();
    };
    const timer = clock.setTimer(end, delay);
    signal.addEventListener('abort', end);
  });
}
