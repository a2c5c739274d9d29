import type { Clock } from '../../api/clock.js';
import type { Random } from '../../api/random.js';

/** The pause before round `round` (from 0), doubled with each and shortened at random by up to a half, so that callers that failed together do not return together. */
export function backOff(
  random: Random,
  round: number,
  { first, most }: { readonly first: number; readonly most: number },
): number {
  return Math.min(first * 2 ** round, most) * (0.5 + random.fraction() / 2);
}

/** An interval, longer or shorter at random by up to this share of it, so that not all processes act at the same moment. */
export function jitter(random: Random, interval: number, share: number): number {
  return interval * (1 - share + 2 * share * random.fraction());
}

/**
 * The result of `work`, or of `late` if `work` takes longer than `timeout` ms: by default undefined. The work goes on, and its late
 * failure is ignored.
 *
 * Keeps the process alive, because a caller awaits it.
 */
export function withTimeout<T, L = undefined>(
  clock: Clock,
  timeout: number,
  work: PromiseLike<T>,
  late?: () => L,
): Promise<T | L> {
  // One promise, without a race: each statement of SQL and each answer of a node goes through here.
  return new Promise((resolve, reject) => {
    const onLate = () => {
      resolve(Promise.resolve().then(late));
    };
    const timer = clock.setTimer(onLate, timeout, true);
    work.then(
      (result) => {
        clock.clearTimer(timer);
        resolve(result);
      },
      (error: unknown) => {
        clock.clearTimer(timer);
        reject(error);
      },
    );
  });
}

/**
 * Waits for `delay` ms, or until the signal aborts.
 *
 * @param keepAlive whether the process must not end before: for a start or an operation that a caller awaits
 */
export function pause(clock: Clock, delay: number, signal: AbortSignal, keepAlive = false): Promise<void> {
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
    const timer = clock.setTimer(end, delay, keepAlive);
    signal.addEventListener('abort', end);
  });
}
