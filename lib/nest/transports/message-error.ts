import type { LockError } from '../../api/errors.js';
import { toClientError } from './client-error.js';
import { logLoss } from './log-loss.js';
import { logger } from '../options/module-logger.js';

/** The error that the client of a message transport (RPC, WebSocket) gets, in the shape of Nest's own exceptions there. */
export interface MessageError {
  readonly status: 'error';
  readonly message: string;
  readonly code?: string;
  readonly retryAfter?: number;
}

/** Misuse is logged and the client does not see it, as with any bug of the server in Nest. */
export function toMessageError(error: LockError): MessageError {
  logLoss(error);
  const clientError = toClientError(error);
  if (!clientError) {
    logger.error(error);
    return { status: 'error', message: 'Internal server error' };
  }
  const { message, code, retryAfter } = clientError;
  return { status: 'error', message, code, ...(retryAfter !== undefined && { retryAfter }) };
}
