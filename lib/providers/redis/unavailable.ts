import { LockConfigError, LockError, LockUnavailableError } from '../../api/errors.js';
import { inBrackets } from '../../api/printable.js';
import { isReplyError } from './client/redis-connection.js';
import { isNotClustered, refusalIn } from './client/refusals.js';
import { NotReplicated } from './wait-connection.js';

/**
 * The error for an operation on `key` that failed or got no reply. `sent: false` means no command has left this
 * process.
 */
export function unavailable(provider: string, key: string, cause: unknown, sent = true): LockError {
  const what = `Lock "${key}" of provider "${provider}"`;
  return errorOf(what, `${reasonOf(cause)}; check the server and its log.`, { key, provider, cause, sent });
}

/** The error for a record that could not be read or written. */
export function recordUnavailable(provider: string, name: string, cause: unknown): LockError {
  const what = `Record "${name}" of provider "${provider}" is not available`;
  return errorOf(what, `${reasonOf(cause)}; check the server and its log.`, { provider, cause });
}

/** The error for an incomplete list. */
export function notListed(provider: string, what: 'locks' | 'records', cause: unknown): LockError {
  if (LockError.is(cause)) return cause;
  const otherwise = `${reasonOf(cause)}; retry, or check the server and its log.`;
  return errorOf(`Could not list all ${what} of provider "${provider}"`, otherwise, { provider, cause });
}

/** The error for a failed connection at startup. */
export function notConnected(provider: string, cause: unknown): LockError {
  if (isNotClustered(cause)) {
    const message = `Lock provider "${provider}": this server is not in cluster mode, but it is configured as "cluster". Pass its address as "url", or enable cluster mode on it.`;
    return new LockConfigError(message, { provider, cause });
  }
  const otherwise = `it is not responding${inBrackets(cause)}. Check its address and credentials, and that it is up.`;
  return errorOf(`Lock provider "${provider}" cannot reach Redis`, otherwise, { provider, cause });
}

/**
 * Creates a `LockUnavailableError` for an outage, or a {@link LockConfigError} that explains a definite refusal by
 * Redis.
 *
 * @param otherwise the reason if Redis didn't refuse anything
 */
function errorOf(
  what: string,
  otherwise: string,
  details: {
    readonly key?: string;
    readonly provider: string;
    readonly cause: unknown;
    readonly sent?: boolean;
  },
): LockError {
  const refusal = refusalIn(details.cause);
  const message = `${what}: ${refusal?.words ?? otherwise}`;
  return refusal?.isDefinite
    ? new LockConfigError(message, { ...details, refused: true })
    : new LockUnavailableError(message, details);
}

function reasonOf(cause: unknown): string {
  if (cause instanceof NotReplicated) return `too few replicas have acknowledged it (${cause.message})`;
  if (cause instanceof SyntaxError) return 'its key in Redis has a value that is not a lock';
  const [refusal, slot = ''] = isReplyError(cause) ? (/^(?:TRYAGAIN|ASK (\d+)) /.exec(cause.message) ?? []) : [];
  if (refusal !== undefined) {
    return `its hash slot ${slot && `${slot} `}is marked as MIGRATING. If no migration is running, clear the mark with CLUSTER SETSLOT ${slot || '<slot>'} STABLE on the slot's owner`;
  }
  return isReplyError(cause) ? `Redis refuses it (${cause.message})` : 'Redis did not respond';
}
