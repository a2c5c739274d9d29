import type { Clock, Random } from '../../../engine/lock-provider.js';

// Before a row is asked for again, in ms: half of it at least.
const PAUSE = 60;

/** Waits a little, jittered, or until the caller leaves. */
export function pauseBeforeRetry(clock: Clock, random: Random, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
      return;
    }
    const done = () => {
      clock.clearTimer(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = clock.setTimer(done, PAUSE * (0.5 + random.fraction() / 2));
    signal.addEventListener('abort', done, { once: true });
  });
}
