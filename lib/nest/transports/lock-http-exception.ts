import { STATUS_CODES } from 'node:http';
import { HttpException } from '@nestjs/common';
import type { LockError } from '../../api/errors.js';
import type { ClientError } from './client-error.js';

export const STATUSES = { busy: 423, unavailable: 503, lost: 500, conflict: 409, misuse: 500 } as const;

/** The body of a lock error over HTTP: an RFC 9457 problem with the default `type`, `about:blank`. */
export interface LockProblem {
  /** The status code's standard phrase, such as `Locked`. */
  readonly title: string;
  readonly status: number;
  /** A human-readable sentence, without the key. */
  readonly detail: string;
  /** The lock error's machine-readable code, such as `LOCK_BUSY`. */
  readonly code: string;
}

/**
 * A lock error as a Nest HTTP error. The lock error itself is the `cause`. `getResponse()` returns the {@link
 * LockProblem}, which is sent as `application/problem+json` unless an application filter responds.
 */
export class LockHttpException extends HttpException {
  /** Seconds for the `Retry-After` header, or `undefined` if a retry would not help. */
  readonly retryAfter: number | undefined;

  /** @internal */
  constructor(error: LockError, status: number, { message, code, retryAfter }: ClientError) {
    const title = STATUS_CODES[status] ?? 'Lock Error';
    super({ title, status, detail: message, code } satisfies LockProblem, status, { cause: error });
    this.message = message;
    this.retryAfter = retryAfter;
  }
}
