import { type LockConfigError, LockError, type LockUnavailableError } from '../../api/errors.js';

/**
 * Whether asking again may help: the backend is down, or failed in a way that it did not name. What it did name (pool
 * exhausted, refused by its configuration, …) would only be named again.
 */
export function isRetryable(error: unknown): boolean {
  return !LockError.is(error) || isUnavailable(error);
}

/** Whether an ask that failed so may have reached the backend. */
export function wasSent(error: unknown): boolean {
  return !isUnavailable(error) || error.sent;
}

/** Whether a server has refused what was asked: {@link LockConfigError.refused}. */
export function isRefusal(error: unknown): error is LockConfigError {
  return LockError.is(error) && error.code === 'LOCK_CONFIG' && (error as Partial<LockConfigError>).refused === true;
}

/** By its code rather than its class: a provider may come from a second copy of this package. */
export function isUnavailable(error: unknown): error is LockUnavailableError {
  return LockError.is(error) && error.code === 'LOCK_UNAVAILABLE';
}
