import { type LockConfigError, LockError, type LockUnavailableError } from '../../api/errors.js';

/**
 * Whether a retry may help: the backend is down, or its driver failed with an error. Other lock errors (pool exhausted,
 * refused by the configuration, …) would only recur.
 */
export function isRetryable(error: unknown): boolean {
  return !LockError.is(error) || isUnavailable(error);
}

/** Whether the failed request may have reached the backend. */
export function wasSent(error: unknown): boolean {
  return !isUnavailable(error) || error.sent;
}

/**
 * How long a possibly temporary refusal counts as an outage, in ms.
 *
 * All providers follow the same rule. If a server refuses a command (because of a permissions problem, an ACL, or a
 * wrong table), the call fails immediately with a {@link LockConfigError} that has `refused` set, because a retry would
 * only burden the server. A possibly temporary refusal is reported as `LockUnavailableError` at first, so callers wait:
 *
 * - a login that was accepted before: after a password rotation, the next connection may have the right password
 * - a demoted master: its address will soon point to the new one
 * - a login that only one of several servers refuses
 *
 * After this time, such a refusal is treated like any other, and the provider keeps retrying in the background or on
 * each call. Silence, full memory, and a lost quorum count as outages for as long as they last. So does reaching a
 * replica, if the client finds the new master automatically (Sentinel, Cluster).
 */
export const REFUSAL_RETRIED_FOR = 10_000;

/** Whether the server refused the command: see {@link LockConfigError.refused}. */
export function isRefusal(error: unknown): error is LockConfigError {
  return LockError.is(error) && error.code === 'LOCK_CONFIG' && (error as Partial<LockConfigError>).refused === true;
}

/** Compares the code rather than the class, because a provider may come from another copy of this package. */
export function isUnavailable(error: unknown): error is LockUnavailableError {
  return LockError.is(error) && error.code === 'LOCK_UNAVAILABLE';
}
