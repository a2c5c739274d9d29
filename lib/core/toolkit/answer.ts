import type { Answer } from '../../api/lock-provider.js';

/**
 * What stands between an answer that may be there already and a caller who wants a promise. With async hooks on, as under
 * AsyncLocalStorage, each promise costs up to half a microsecond, so the engine makes no more of them than it needs.
 */

/** Gives the answer of `task` as a promise, also what it throws. */
export function promised<T>(task: () => Answer<T>): Promise<T> {
  try {
    return Promise.resolve(task());
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Goes on with an answer: at once if it is there. */
export function after<T, R>(answer: Answer<T>, next: (value: T) => Answer<R>): Answer<R> {
  return isPromiseLike(answer) ? answer.then(next) : next(answer);
}

/** Whether an answer has yet to come. */
export function isPromiseLike<T>(answer: Answer<T>): answer is PromiseLike<T> {
  return typeof answer === 'object' && answer !== null && 'then' in answer;
}
