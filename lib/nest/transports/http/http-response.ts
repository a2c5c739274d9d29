import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { StreamableFile } from '@nestjs/common';
import type { AbstractHttpAdapter } from '@nestjs/core';
import type { LockHttpException } from './lock-http-exception.js';

/** Writes the headers that belong to the exception; whoever handles it writes status and body. */
export function setProblemHeaders(adapter: AbstractHttpAdapter, response: unknown, exception: LockHttpException): void {
  if (adapter.isHeadersSent(response)) return;
  adapter.setHeader(response, 'Content-Type', 'application/problem+json');
  if (exception.retryAfter !== undefined) adapter.setHeader(response, 'Retry-After', String(exception.retryAfter));
}

/** Resolves when a response that the handler's result does not complete is over; `undefined` when the result completes it. */
export function streamedResponse(response: unknown, result: unknown): Promise<void> | undefined {
  // Fastify wraps Node's response, Express extends it.
  const raw = ((response as { raw?: ServerResponse }).raw ?? response) as ServerResponse;
  const streams = result instanceof StreamableFile || (raw.headersSent && !raw.writableEnded);
  if (!streams || raw.destroyed) return undefined;
  // `close` comes after the last byte as well as when the client goes away.
  return once(raw, 'close').then(() => undefined);
}
