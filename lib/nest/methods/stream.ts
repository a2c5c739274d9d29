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
