import { LockError } from '../lock/errors.js';

/**
 * Whether asking again may help: the backend is down, or failed in a way that it did not name. What it did name (pool
 * exhausted, refused by its configuration, …) would only be named again.
 */
export function isRetryable(error: unknown): boolean {
  // By its code rather than its class: a provider may come from a second copy of this package.
  return !LockError.is(error) || error.code === 'LOCK_UNAVAILABLE';
}
