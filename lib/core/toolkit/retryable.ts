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

/**
 * For how long a refusal that may pass by itself counts as an outage, in ms.
 *
 * The rule of all providers: what a server refuses is a {@link LockConfigError} with `refused`, and immediately, because asking again only loads the
 * server (a permission, an ACL, a wrong table). A refusal that may pass by itself is a `LockUnavailableError` first, so that callers wait: a
 * login that was accepted before, since a password that is rotated may be right at the next connection; a master that was demoted, since its
 * address leads to the new one soon; a login that one of several servers refuses. After this time it is a refusal like any other, and
 * the provider goes on asking, in the background or with each call. Silence, a full memory and a lost quorum are outages for as long as they last. Where a failover
 * finds the writer by itself (Sentinel, Cluster), so is a replica.
 */
export const REFUSAL_RETRIED_FOR = 10_000;

/** Whether a server has refused what was asked: {@link LockConfigError.refused}. */
export function isRefusal(error: unknown): error is LockConfigError {
  return LockError.is(error) && error.code === 'LOCK_CONFIG' && (error as Partial<LockConfigError>).refused === true;
}

/** By its code rather than its class: a provider may come from a second copy of this package. */
export function isUnavailable(error: unknown): error is LockUnavailableError {
  return LockError.is(error) && error.code === 'LOCK_UNAVAILABLE';
}
