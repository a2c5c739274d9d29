import { LockBusyError, LockDeadlockError } from './errors.js';

/** Whether the lock was not acquired because others have it: for the whole wait, or in a cycle of callers that wait for each other. */
export function isBusy(error: unknown): error is LockBusyError | LockDeadlockError {
  // An error of an earlier copy of this package has no such property.
  return error instanceof LockBusyError || (error instanceof LockDeadlockError && Boolean(error.cycle));
}
