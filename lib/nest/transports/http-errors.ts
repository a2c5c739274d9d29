import { StreamableFile } from '@nestjs/common';
import type { HttpAdapterHost } from '@nestjs/core';
import { LockError } from '../../api/errors.js';
import type { DistributedLockModuleOptions } from '../options/module-options.js';
import { logMisuse, toClientError } from './client-error.js';
import { LockHttpException, STATUSES } from './lock-http-exception.js';

/** How an application answers lock errors over HTTP. */
export class HttpErrors {
  constructor(
    private readonly options: DistributedLockModuleOptions,
    // A host and not its adapter, which a testing module gets only after it was compiled.
    private readonly host: HttpAdapterHost,
  ) {}

  /** The HTTP error that filters see of a lock error, with its header on the response; misuse as it is. */
  map(error: LockError, response: unknown): LockHttpException | LockError {
    const clientError = toClientError(error);
    return clientError.kind === 'misuse' ? error : this.#exceptionOf(error, response);
  }

  /** Answers with the problem of RFC 9457, or just ends what was begun to be sent. */
  answer(thrown: LockError | LockHttpException, response: unknown): void {
    const { httpAdapter } = this.host;
    // The interceptor has not seen what a guard throws.
    const exception = LockError.is(thrown) ? this.#exceptionOf(thrown, response) : thrown;
    if (httpAdapter.isHeadersSent(response)) {
      httpAdapter.end(response);
      return;
    }
    httpAdapter.setHeader(response, 'Content-Type', 'application/problem+json');
    // As text: the Express adapter of Nest 11 sends each error that is an object as application/json.
    httpAdapter.reply(response, JSON.stringify(exception.getResponse()), exception.getStatus());
  }

  /**
   * Lets a file whose stream fails with a lock error before its first byte answer as all lock errors do: Express reads the stream after the
   * filters have run, and answers 400. The application's own error handler of a file stays.
   */
  answerFor(file: StreamableFile): void {
    const handle = file.errorHandler;
    // Each file has a function of its own, of one and the same text.
    if (String(handle) !== String(new StreamableFile(new Uint8Array()).errorHandler)) return;
    file.setErrorHandler((error: Error, response) => {
      if (LockError.is(error) && !response.headersSent && !response.destroyed) this.answer(error, response);
      else handle(error, response);
    });
  }

  #exceptionOf(error: LockError, response: unknown): LockHttpException {
    const clientError = toClientError(error);
    const { kind, retryAfter } = clientError;
    const { busy = STATUSES.busy } = (this.options.mapErrors || undefined)?.http ?? {};
    if (kind === 'misuse') logMisuse(error);
    // Set here, because filters write status and body only.
    if (retryAfter !== undefined && !this.host.httpAdapter.isHeadersSent(response)) {
      this.host.httpAdapter.setHeader(response, 'Retry-After', String(retryAfter));
    }
    return new LockHttpException(error, { ...STATUSES, busy }[kind], clientError);
  }
}
