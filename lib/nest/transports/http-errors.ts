import { STATUS_CODES } from 'node:http';
import { HttpException, StreamableFile } from '@nestjs/common';
import type { HttpAdapterHost } from '@nestjs/core';
import { LockError } from '../../api/errors.js';
import type { DistributedLockModuleOptions } from '../options/module-options.js';
import { type ClientError, logMisuse, toClientError } from './client-error.js';

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
  constructor(error: LockError, status: number, { message, details: { code, retryAfter } }: ClientError) {
    const title = STATUS_CODES[status] ?? 'Lock Error';
    super({ title, status, detail: message, code } satisfies LockProblem, status, { cause: error });
    this.message = message;
    this.retryAfter = retryAfter;
  }
}

/** How an application responds to lock errors over HTTP. */
export class HttpErrors {
  constructor(
    private readonly options: DistributedLockModuleOptions,
    // We keep the host, not its adapter, because a testing module has no adapter until it's compiled.
    private readonly host: HttpAdapterHost,
  ) {}

  /**
   * The HTTP error that filters receive for a lock error. Sets the error's header on the response. Misuse errors are
   * left unchanged.
   */
  map(error: LockError, response: unknown): LockHttpException | LockError {
    const clientError = toClientError(error);
    return clientError.kind === 'misuse' ? error : this.#exceptionOf(error, response);
  }

  /** Responds with an RFC 9457 problem, or ends a response that has already started. */
  answer(thrown: LockError | LockHttpException, response: unknown): void {
    const { httpAdapter } = this.host;
    // The interceptor does not see errors from guards.
    const exception = LockError.is(thrown) ? this.#exceptionOf(thrown, response) : thrown;
    if (httpAdapter.isHeadersSent(response)) {
      httpAdapter.end(response);
      return;
    }
    httpAdapter.setHeader(response, 'Content-Type', 'application/problem+json');
    // Sent as text, because Nest 11's Express adapter sends every error object as application/json.
    httpAdapter.reply(response, JSON.stringify(exception.getResponse()), exception.getStatus());
  }

  /**
   * Handles a lock error in a file's stream like any other, unless bytes have already been sent. Express reads the
   * stream after the filters have run and would otherwise respond with 400. Keeps any error handler that the
   * application set on the file.
   */
  answerFor(file: StreamableFile): void {
    const handle = file.errorHandler;
    // Each file has its own default handler, but all have identical source text.
    if (String(handle) !== String(new StreamableFile(new Uint8Array()).errorHandler)) return;
    file.setErrorHandler((error: Error, response) => {
      if (LockError.is(error) && !response.headersSent && !response.destroyed) this.answer(error, response);
      else handle(error, response);
    });
  }

  #exceptionOf(error: LockError, response: unknown): LockHttpException {
    const clientError = toClientError(error);
    const { retryAfter } = clientError.details;
    const { busy = STATUSES.busy } = (this.options.mapErrors || undefined)?.http ?? {};
    if (clientError.kind === 'misuse') logMisuse(error);
    // Filters only write the status and the body.
    if (retryAfter !== undefined && !this.host.httpAdapter.isHeadersSent(response)) {
      this.host.httpAdapter.setHeader(response, 'Retry-After', String(retryAfter));
    }
    return new LockHttpException(error, { ...STATUSES, busy }[clientError.kind], clientError);
  }
}
