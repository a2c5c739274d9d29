import type { ServerResponse } from 'node:http';
import type { ExecutionContext } from '@nestjs/common';
import { RESPONSE_PASSTHROUGH_METADATA, ROUTE_ARGS_METADATA } from '@nestjs/common/constants.js';
import { RouteParamtypes } from '@nestjs/common/enums/route-paramtypes.enum.js';
import { isStream } from '../methods/results/streams.js';

/** Resolves when the response has ended. `undefined` if the handler's result completes the response. */
export function streamedResponse(
  context: ExecutionContext,
  handler: string | symbol,
  result: unknown,
): Promise<void> | undefined {
  const raw = rawResponse(context);
  if (raw.writableEnded || raw.destroyed) return undefined;
  if (!holdsStream(result) && !raw.headersSent && !respondsByItself(context.getClass(), handler)) return undefined;
  // `close` follows the last byte, a client disconnect, or an error (which the application handles).
  return new Promise((resolve) => raw.once('close', resolve));
}

/**
 * Aborts when the response has been sent, for example by a timeout in another interceptor. Doesn't abort if the client
 * merely disconnects: webhook senders don't wait for the response, but they expect the work to be done.
 */
export function signalOfResponse(context: ExecutionContext, method: string): AbortSignal {
  const raw = rawResponse(context);
  const controller = new AbortController();
  const onEnd = (): void => {
    if (!raw.writableEnded) return;
    controller.abort(
      new DOMException(
        `${method} did not run: the response was sent while it waited for its lock. To continue after the response, lock a method that the handler calls without await.`,
        'AbortError',
      ),
    );
  };
  // A guard may have taken so long that a timeout has already answered.
  onEnd();
  // A response that ends after the client disconnects doesn't emit `finish`.
  raw.once('finish', onEnd);
  raw.once('close', onEnd);
  return controller.signal;
}

/** Whether Node.js closes idle connections (by default, it doesn't). */
export function hasSocketTimeout(context: ExecutionContext): boolean {
  return Boolean(rawResponse(context).socket?.timeout);
}

// Fastify wraps Node's response; Express extends it.
function rawResponse(context: ExecutionContext): ServerResponse {
  const response: ServerResponse & { raw?: ServerResponse } = context.switchToHttp().getResponse();
  return response.raw ?? response;
}

// Nest also sends a stream that an interceptor has wrapped in `{ data: stream }`.
function holdsStream(result: unknown): boolean {
  return isStream(result) || (typeof result === 'object' && result !== null && Object.values(result).some(isStream));
}

/**
 * Whether Nest leaves the response to the handler, which may return before the first byte is sent, as with
 * `file.pipe(response)`.
 */
function respondsByItself(controller: object, handler: string | symbol): boolean {
  if (Reflect.getMetadata(RESPONSE_PASSTHROUGH_METADATA, controller, handler)) return false;
  const parameters = (Reflect.getMetadata(ROUTE_ARGS_METADATA, controller, handler) ?? {}) as object;
  return Object.keys(parameters).some((parameter) => BY_ITSELF.has(Number.parseInt(parameter, 10)));
}

const BY_ITSELF: ReadonlySet<number> = new Set([RouteParamtypes.RESPONSE, RouteParamtypes.NEXT]);
