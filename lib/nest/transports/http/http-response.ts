import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { ExecutionContext } from '@nestjs/common';
import { RESPONSE_PASSTHROUGH_METADATA, ROUTE_ARGS_METADATA } from '@nestjs/common/constants.js';
import { RouteParamtypes } from '@nestjs/common/enums/route-paramtypes.enum.js';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { isStream } from '../../stream.js';
import type { LockHttpException } from './lock-http-exception.js';

/** Writes the header that belongs to the exception; whoever handles it writes status and body. */
export function setRetryAfter(
  adapter: AbstractHttpAdapter,
  response: unknown,
  { retryAfter }: LockHttpException,
): void {
  if (retryAfter === undefined || adapter.isHeadersSent(response)) return;
  adapter.setHeader(response, 'Retry-After', String(retryAfter));
}

/** Resolves when a response that the handler's result does not complete is over; `undefined` when the result completes it. */
export function streamedResponse(context: ExecutionContext, result: unknown): Promise<void> | undefined {
  const response: ServerResponse & { raw?: ServerResponse } = context.switchToHttp().getResponse();
  // Fastify wraps Node's response, Express extends it.
  const raw = response.raw ?? response;
  if (raw.writableEnded || raw.destroyed) return undefined;
  if (!holdsStream(result) && !raw.headersSent && !respondsByItself(context)) return undefined;
  // `close` comes after the last byte as well as when the client goes away.
  return once(raw, 'close').then(() => undefined);
}

// Nest also sends the stream in `{ data: stream }`, which an interceptor may have made of it.
function holdsStream(result: unknown): boolean {
  return isStream(result) || (typeof result === 'object' && result !== null && Object.values(result).some(isStream));
}

/** Whether Nest leaves the response to the handler: it may return before the first byte, as after `file.pipe(response)`. */
function respondsByItself(context: ExecutionContext): boolean {
  const controller = context.getClass();
  const { name } = context.getHandler();
  if (Reflect.getMetadata(RESPONSE_PASSTHROUGH_METADATA, controller, name)) return false;
  const parameters = (Reflect.getMetadata(ROUTE_ARGS_METADATA, controller, name) ?? {}) as object;
  return Object.keys(parameters).some((parameter) => BY_ITSELF.has(Number.parseInt(parameter, 10)));
}

const BY_ITSELF: ReadonlySet<number> = new Set([RouteParamtypes.RESPONSE, RouteParamtypes.NEXT]);
