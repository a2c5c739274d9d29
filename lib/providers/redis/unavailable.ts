import { LockUnavailableError } from '../../api/errors.js';
import { isReplyError, LOGIN_REMEDY, refusedLogin } from './client/redis-connection.js';
import { NotReplicated } from './wait-connection.js';

/** The error for an operation on `key` that was not answered, or refused; with `sent` false no command has left this process. */
export function unavailable(provider: string, key: string, cause: unknown, sent = true): LockUnavailableError {
  const login = refusedLogin(cause);
  const message =
    login === undefined
      ? `Lock "${key}" of provider "${provider}": ${reasonOf(cause)}; check the server and its log.`
      : `Lock "${key}" of provider "${provider}": Redis refuses the login (${login}). ${LOGIN_REMEDY}`;
  return new LockUnavailableError(message, { key, provider, cause, sent });
}

/** The error for a list of all locks. */
export function notListed(provider: string, cause: unknown): LockUnavailableError {
  const login = refusedLogin(cause);
  const reason =
    login === undefined
      ? `${reasonOf(cause)}; list them again, or check the server and its log.`
      : `Redis refuses the login (${login}). ${LOGIN_REMEDY}`;
  return new LockUnavailableError(`The locks of provider "${provider}" were not all listed: ${reason}`, {
    provider,
    cause,
  });
}

/** The error for a start without a connection. */
export function notConnected(provider: string, cause: unknown): LockUnavailableError {
  const login = refusedLogin(cause);
  const message =
    login === undefined
      ? `Lock provider "${provider}" cannot reach Redis: check its address and credentials, and that it is up.`
      : `Lock provider "${provider}" cannot use Redis, which refuses the login (${login}). ${LOGIN_REMEDY}`;
  return new LockUnavailableError(message, { provider, cause });
}

function reasonOf(cause: unknown): string {
  if (cause instanceof NotReplicated) return `too few replicas have it (${cause.message})`;
  if (cause instanceof SyntaxError) return 'its record in Redis is not that of a lock';
  return isReplyError(cause) ? `Redis refuses it (${cause.message})` : 'Redis did not answer';
}
