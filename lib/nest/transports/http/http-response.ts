import type { ServerResponse } from 'node:http';
import { type ExecutionContext, StreamableFile } from '@nestjs/common';
import { RESPONSE_PASSTHROUGH_METADATA, ROUTE_ARGS_METADATA } from '@nestjs/common/constants.js';
import { RouteParamtypes } from '@nestjs/common/enums/route-paramtypes.enum.js';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { LockError } from '../../../api/errors.js';
import type { DistributedLockModuleOptions } from '../../options/module-options.js';
import { isStream } from '../../methods/stream.js';
import { LockHttpException, toHttpException } from './lock-http-exception.js';

/** The HTTP error for a lock error, with its header on the response; misuse stays what it is. */
export function asHttpError(
  error: LockError,
  { mapErrors }: DistributedLockModuleOptions,
  adapter: AbstractHttpAdapter,
  response: unknown,
): LockHttpException | LockError {
  const exception = toHttpException(error, mapErrors === false ? {} : mapErrors?.http);
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

/** Resolves when a response that the handler's result does not complete is over; `undefined` when the result completes it. */
export function streamedResponse(
  context: ExecutionContext,
  handler: string | symbol,
  result: unknown,
): Promise<void> | undefined {
  const raw = rawResponse(context);
  if (raw.writableEnded || raw.destroyed) return undefined;
  if (!holdsStream(result) && !raw.headersSent && !respondsByItself(context.getClass(), handler)) return undefined;
  // `close` comes after the last byte, when the client goes away, and after an error, which is the application's to hear of.
  return new Promise((resolve) => raw.once('close', resolve));
}

/** Whether Node.js ends the connection when nothing has moved on it for a while, which it does not by default. */
export function hasSocketTimeout(context: ExecutionContext): boolean {
  return Boolean(rawResponse(context).socket?.timeout);
}

// Fastify wraps Node's response, Express extends it.
function rawResponse(context: ExecutionContext): ServerResponse {
  const response: ServerResponse & { raw?: ServerResponse } = context.switchToHttp().getResponse();
  return response.raw ?? response;
}

// Nest also sends the stream in `{ data: stream }`, which an interceptor may have made of it.
function holdsStream(result: unknown): boolean {
  return isStream(result) || (typeof result === 'object' && result !== null && Object.values(result).some(isStream));
}

/** Whether Nest leaves the response to the handler: it may return before the first byte, as after `file.pipe(response)`. */
function respondsByItself(controller: object, handler: string | symbol): boolean {
  if (Reflect.getMetadata(RESPONSE_PASSTHROUGH_METADATA, controller, handler)) return false;
  const parameters = (Reflect.getMetadata(ROUTE_ARGS_METADATA, controller, handler) ?? {}) as object;
  return Object.keys(parameters).some((parameter) => BY_ITSELF.has(Number.parseInt(parameter, 10)));
}

const BY_ITSELF: ReadonlySet<number> = new Set([RouteParamtypes.RESPONSE, RouteParamtypes.NEXT]);
