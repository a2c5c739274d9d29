import {
  LockCapacityError,
  type LockError,
  LockLostError,
  LockUnavailableError,
  VersionConflictError,
} from '../../api/errors.js';
import { isBusy } from '../../api/is-busy.js';
import { isReported, markReported } from '../../core/hold/lost-error.js';
import { isSelfWait } from '../../core/insight/refusals.js';
import { logger } from '../options/module-logger.js';

const MESSAGES = {
  busy: 'The resource is in use by another request. Try again later.',
  unavailable: 'The resource cannot be locked at the moment. Try again later.',
  lost: 'The request lost its exclusive access before it completed. Its outcome is unknown.',
  conflict: 'Another request changed the resource in the meantime. This request wrote nothing.',
  // A server bug, so clients don't see any details.
  misuse: 'Internal server error',
};

// A guess in whole seconds (RFC 9110 §10.2.3): no process knows when a lock will be free.
const SOON = 1;

/**
 * A lock error as clients see it, on every transport. It never names the key or provider, which are server internals.
 */
export interface ClientError {
  readonly kind: keyof typeof MESSAGES;
  readonly message: string;
  readonly details: {
    /** The lock error's own code, such as `LOCK_BUSY`. */
    readonly code: string;
    /** The number of seconds to wait before retrying. Absent if a retry wouldn't help. */
    readonly retryAfter?: number;
  };
}

/** A lock error as clients see it. */
export function toClientError(error: LockError): ClientError {
  const kind = kindOf(error);
  if (kind === 'lost') logLoss(error);
  const { code } = error;
  const details = kind === 'busy' || kind === 'unavailable' ? { code, retryAfter: SOON } : { code };
  return { kind, message: MESSAGES[kind], details };
}

function kindOf(error: LockError): ClientError['kind'] {
  if (isBusy(error) && !isSelfWait(error)) return 'busy';
  if (error instanceof LockUnavailableError || error instanceof LockCapacityError) return 'unavailable';
  if (error instanceof LockLostError) return 'lost';
  // A retry with the same data would overwrite what the other request wrote.
  return error instanceof VersionConflictError ? 'conflict' : 'misuse';
}

/**
 * Logs a loss error that the application itself threw, for example after the database rejected a write in favor of a
 * later holder. The client sees neither the key nor the reason, and the core logs only losses that it detects.
 */
function logLoss(error: LockError): void {
  if (isReported(error)) return;
  markReported(error);
  logger.warn(error.message);
}

/** Logs misuse errors that a filter handles, since Nest doesn't log handled errors. */
export function logMisuse(error: LockError): void {
  if (!isReported(error)) logger.error(error);
}

/**
 * The error that clients of a message transport (RPC, WebSocket) receive, in the same shape as Nest's own exceptions.
 */
export interface MessageError extends Partial<ClientError['details']> {
  readonly status: 'error';
  readonly message: string;
}

export function toMessageError(error: LockError): MessageError {
  const { kind, message, details } = toClientError(error);
  if (kind !== 'misuse') return { status: 'error', message, ...details };
  logMisuse(error);
  return { status: 'error', message };
}
