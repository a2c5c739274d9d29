import type { Answer } from './lock-provider.js';

/** Whether an answer has yet to come. */
export function isPromiseLike<T>(answer: Answer<T>): answer is PromiseLike<T> {
  return typeof answer === 'object' && answer !== null && 'then' in answer;
}
