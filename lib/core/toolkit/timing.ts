import type { Clock } from '../../api/clock.js';
import type { Random } from '../../api/random.js';

/**
 * The pause before retry `round`, counted from 0. It doubles with each round, and jitter shortens it by up to half, so
 * that callers that failed together don't retry together.
 */
export function backOff(
  random: Random,
  round: number,
  { first, most }: { readonly first: number; readonly most: number },
): number {
  return Math.min(first * 2 ** round, most) * (0.5 + random.fraction() / 2);
}

/**
 * The interval plus or minus a random amount of at most `share` times its length, so that processes don't act in
 * lockstep.
 */
export function jitter(random: Random, interval: number, share: number): number {
  return interval * (1 - share + 2 * share * random.fraction());
}

/**
 * The result of `work`, or of `late` (default: `undefined`) if `work` takes longer than `timeout` ms. The work
 * continues, and a later failure is ignored.
 *
 * Keeps the process alive, because a caller awaits the result.
 */
export function withTimeout<T, L = undefined>(
  clock: Clock,
  timeout: number,
  work: PromiseLike<T>,
  late?: () => L,
): Promise<T | L> {
  // A single promise is cheaper than Promise.race, and every SQL statement and every Redlock node response passes
  // through here.
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
 * @param keepAlive whether to keep the process alive until then: for a startup or an operation that a caller awaits
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
