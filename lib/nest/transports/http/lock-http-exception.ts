import { HttpException, HttpStatus } from '@nestjs/common';
import {
  LockCapacityError,
  type LockError,
  LockLostError,
  LockTimeoutError,
  LockUnavailableError,
} from '../../../lock/errors.js';

/** The statuses that lock errors get. */
export interface HttpLockStatuses {
  /** Default 423 Locked. */
  readonly busy?: number;
  /** Default 503 Service Unavailable; also for too many waiters. */
  readonly unavailable?: number;
  /** Default 500 Internal Server Error. */
  readonly lost?: number;
}

const LOCKED = 423;
// RFC 9110 §10.2.3: whole seconds. Nobody knows when a lock will be free, so: soon.
const RETRY_AFTER_SECONDS = 1;

/**
 * A lock error as Nest answers an HTTP error, with the lock error's `code` beside `statusCode` and `message`; the error
 * itself is the `cause`. The text names no key: keys are the server's own business.
 */
export class LockHttpException extends HttpException {
  /** Seconds for the `Retry-After` header, or `undefined` where trying again would not help. */
  readonly retryAfter: number | undefined;

  constructor(error: LockError, statusCode: number, name: string, message: string, retryAfter?: number) {
    super({ statusCode, message, error: name, code: error.code }, statusCode, { cause: error });
    this.retryAfter = retryAfter;
  }
}

/** What a client gets for a lock error; `undefined` for misuse, which is a bug of the server like any other. */
export function toHttpException(error: LockError, statuses: HttpLockStatuses): LockHttpException | undefined {
  if (error instanceof LockTimeoutError) {
    const message = 'The resource is in use by another request. Try again later.';
    return new LockHttpException(error, statuses.busy ?? LOCKED, 'Locked', message, RETRY_AFTER_SECONDS);
  }
  if (error instanceof LockUnavailableError || error instanceof LockCapacityError) {
    const status = statuses.unavailable ?? HttpStatus.SERVICE_UNAVAILABLE;
    const message = 'The resource cannot be locked at the moment. Try again later.';
    return new LockHttpException(error, status, 'Service Unavailable', message, RETRY_AFTER_SECONDS);
  }
  if (error instanceof LockLostError) {
    const status = statuses.lost ?? HttpStatus.INTERNAL_SERVER_ERROR;
    const message = 'The request lost its exclusive access before it was complete. Its outcome is uncertain.';
    return new LockHttpException(error, status, 'Lock Lost', message);
  }
  return undefined;
}
