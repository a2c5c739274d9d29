import { LockBusyError, LockDeadlockError } from './errors.js';

/**
 * Whether acquiring a lock failed because other callers held it, either for the whole wait or in a cycle of callers
 * waiting for each other.
 *
 * @example
 * ```ts
 * try {
 *   await locks.withLock(`order:${id}`, () => ship(id));
 * } catch (error) {
 *   if (!isBusy(error)) throw error;
 *   return 'try again later';
 * }
 * ```
 */
export function isBusy(error: unknown): error is LockBusyError | LockDeadlockError {
  // Errors from older copies of this package don't have a `cycle`.
  return error instanceof LockBusyError || (error instanceof LockDeadlockError && Boolean(error.cycle));
}
