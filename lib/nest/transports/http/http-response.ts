import { StreamableFile } from '@nestjs/common';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { LockError } from '../../../api/errors.js';
import type { DistributedLockModuleOptions } from '../../options/module-options.js';
import { logLoss } from '../log-loss.js';
import { LockHttpException, toHttpException } from './lock-http-exception.js';

/** The HTTP error for a lock error, with its header on the response; misuse stays what it is. */
export function asHttpError(
  error: LockError,
  options: DistributedLockModuleOptions,
  adapter: AbstractHttpAdapter,
  response: unknown,
): LockHttpException | LockError {
  logLoss(error);
  const { mapErrors } = options;
  const exception = toHttpException(error, (mapErrors || undefined)?.http?.busy);
  if (!exception) return error;
  // Set here, because filters write status and body only.
  if (exception.retryAfter !== undefined && !adapter.isHeadersSent(response)) {
    adapter.setHeader(response, 'Retry-After', String(exception.retryAfter));
  }
  return exception;
}

/** Answers with the problem of RFC 9457, or just ends what was begun to be sent. */
export function sendProblem(adapter: AbstractHttpAdapter, response: unknown, exception: LockHttpException): void {
  if (adapter.isHeadersSent(response)) {
    adapter.end(response);
    return;
  }
  adapter.setHeader(response, 'Content-Type', 'application/problem+json');
  // As text: the Express adapter of Nest 11 sends each error that is an object as application/json.
  adapter.reply(response, JSON.stringify(exception.getResponse()), exception.getStatus());
}

/**
 * Lets a file whose stream fails with a lock error before its first byte answer as all lock errors do: Express reads the stream after the
 * filters have run, and answers 400. The application's own error handler of a file stays.
 */
export function reportFileErrors(
  file: StreamableFile,
  options: DistributedLockModuleOptions,
  adapter: AbstractHttpAdapter,
): void {
  const handle = file.errorHandler;
  // Each file has a function of its own, of one and the same text.
  if (String(handle) !== String(new StreamableFile(new Uint8Array()).errorHandler)) return;
  file.setErrorHandler((error: Error, response) => {
    const answer = LockError.is(error) && !response.headersSent && !response.destroyed;
    const exception = answer ? asHttpError(error, options, adapter, response) : error;
    if (exception instanceof LockHttpException) sendProblem(adapter, response, exception);
    else handle(error, response);
  });
}
