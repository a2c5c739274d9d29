import type { Clock, Timer } from '../../api/clock.js';
import { LockUnavailableError } from '../../api/errors.js';

/** @throws LockUnavailableError when there is no answer after `patience` ms */
export async function inTime<T>(answer: T | PromiseLike<T>, patience: number, clock: Clock): Promise<T> {
  let timer: Timer | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = clock.setTimer(() => {
      reject(new LockUnavailableError(`There was no answer within ${Math.round(patience)} ms.`));
    }, patience);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    if (timer) clock.clearTimer(timer);
  }
}
