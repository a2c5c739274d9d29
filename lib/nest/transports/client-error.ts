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

/**
 * A lock error as clients see it, on every transport. It never names the key or provider, which are server internals.
 */
export interface ClientError {
  readonly kind: 'busy' | 'unavailable' | 'lost' | 'conflict' | 'misuse';
  readonly message: string;
  /** The lock error's own code, such as `LOCK_BUSY`. */
  readonly code: string;
  /** The number of seconds to wait before retrying. Absent if a retry wouldn't help. */
  readonly retryAfter?: number;
}

// A guess in whole seconds (RFC 9110 §10.2.3): no process knows when a lock will be free.
const SOON = 1;

/** A lock error as clients see it. Misuse is a server bug, so clients don't see any details. */
export function toClientError(error: LockError): ClientError {
  const { code } = error;
  if (isBusy(error) && !isSelfWait(error)) {
    const message = 'The resource is in use by another request. Try again later.';
    return { kind: 'busy', message, code, retryAfter: SOON };
  }
  if (error instanceof LockUnavailableError || error instanceof LockCapacityError) {
    const message = 'The resource cannot be locked at the moment. Try again later.';
    return { kind: 'unavailable', message, code, retryAfter: SOON };
  }
  if (error instanceof LockLostError) {
    logLoss(error);
    const message = 'The request lost its exclusive access before it completed. Its outcome is unknown.';
    return { kind: 'lost', message, code };
  }
  if (error instanceof VersionConflictError) {
    // A retry with the same data would overwrite what the other request wrote.
    const message = 'Another request changed the resource in the meantime. This request wrote nothing.';
    return { kind: 'conflict', message, code };
  }
  return { kind: 'misuse', message: 'Internal server error', code };
}

/**
 * Logs a loss error that the application itself threw, for example after the database rejected a write in favor of a
 * later holder. The client sees neither the key nor the reason, and the core logs only losses that it detects.
 */
function logLoss(error: LockLostError): void {
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
export interface MessageError {
  readonly status: 'error';
  readonly message: string;
  readonly code?: string;
  readonly retryAfter?: number;
}

export function toMessageError(error: LockError): MessageError {
  const { kind, message, code, retryAfter } = toClientError(error);
  if (kind !== 'misuse') return { status: 'error', message, code, ...(retryAfter !== undefined && { retryAfter }) };
  logMisuse(error);
  return { status: 'error', message };
}
