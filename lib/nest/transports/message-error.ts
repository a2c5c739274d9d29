import { Logger } from '@nestjs/common';
import type { LockError } from '../../api/errors.js';
import { toClientError } from './client-error.js';

/** What the client of a message transport (RPC, WebSocket) gets, in the shape of Nest's own exceptions there. */
export interface MessageError {
  readonly status: 'error';
  readonly message: string;
  readonly code?: string;
  readonly retryAfter?: number;
}

const logger = new Logger('DistributedLock');

/** As Nest tells of any bug of the server, misuse is logged and the client learns nothing of it. */
export function toMessageError(error: LockError): MessageError {
  const told = toClientError(error);
  if (!told) {
    logger.error(error);
    return { status: 'error', message: 'Internal server error' };
  }
  const { message, code, retryAfter } = told;
  return { status: 'error', message, code, ...(retryAfter !== undefined && { retryAfter }) };
}
