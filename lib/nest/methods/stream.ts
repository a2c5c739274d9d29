import { StreamableFile } from '@nestjs/common';
import { isObservable } from 'rxjs';

/** Whether a result is read only after it was returned, and so after the method has ended. */
export function isStream(result: unknown): boolean {
  if (typeof result !== 'object' || result === null) return false;
  return (
    Symbol.asyncIterator in result ||
    isObservable(result) ||
    result instanceof StreamableFile ||
    result instanceof Response
  );
}

/** Whether a result is an async generator object, or another async iterator that is its own iterable. */
export function isIteration(result: unknown): result is AsyncGenerator<unknown, unknown, unknown> {
  if (typeof result !== 'object' || result === null || !(Symbol.asyncIterator in result)) return false;
  return 'next' in result && typeof result.next === 'function';
}
