import type { Clock, Timer } from '../../api/clock.js';
import type { Random } from '../../api/random.js';

/** A pause that grows with each round, in ms. */
export interface BackOff {
  readonly first: number;
  readonly most: number;
}

/** The pause before round `round` (from 0), doubled with each and shortened at random by up to a half, so that callers that failed together do not return together. */
export function backOff(random: Random, round: number, { first, most }: BackOff): number {
  return Math.min(first * 2 ** round, most) * (0.5 + random.fraction() / 2);
}

/**
 * What `work` gives, or undefined if it takes longer than `timeout` ms. It goes on, and its late failure is ignored.
 *
 * Keeps the process alive, because a caller awaits it.
 */
export async function withTimeout<T>(clock: Clock, timeout: number, work: PromiseLike<T>): Promise<T | undefined> {
  let timer: Timer | undefined;
  const over = new Promise<undefined>((resolve) => {
    timer = clock.setTimer(
      () => {
        resolve(undefined);
      },
      timeout,
      true,
    );
  });
  try {
    return await Promise.race([work, over]);
  } finally {
    if (timer !== undefined) clock.clearTimer(timer);
  }
}

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
