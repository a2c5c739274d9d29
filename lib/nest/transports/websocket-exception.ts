import type { ExecutionContext, Type } from '@nestjs/common';
import { EXCEPTION_FILTERS_METADATA, FILTER_CATCH_EXCEPTIONS } from '@nestjs/common/constants.js';
import type { LockError } from '../../api/errors.js';
import { toMessageError } from './client-error.js';

/** A socket.io client. */
interface Emitter {
  emit(event: string, data: unknown): void;
}

/** A client from `ws` or another library that follows the browser standard. */
interface NativeSocket {
  readonly readyState: number;
  send(message: string): void;
}

/**
 * Sends the `exception` event that Nest sends for a `WsException`. Like Nest, it first checks what the client can do: a
 * `ws` client also has an `emit`, but that notifies only this process.
 */
export function sendException(client: Emitter | NativeSocket, error: LockError): void {
  const data = toMessageError(error);
  if ('readyState' in client && typeof client.readyState === 'number') {
    client.send(JSON.stringify({ event: 'exception', data }));
  } else {
    (client as Emitter).emit('exception', data);
  }
}

/** Whether a filter on the handler or its gateway catches the error. A filter without a type catches all errors. */
export function isCaught(error: LockError, context: ExecutionContext): boolean {
  const filters = [context.getHandler(), context.getClass()].flatMap(
    (place) => (Reflect.getMetadata(EXCEPTION_FILTERS_METADATA, place) ?? []) as object[],
  );
  return filters.some((filter) => {
    const type = typeof filter === 'function' ? filter : filter.constructor;
    const caught = (Reflect.getMetadata(FILTER_CATCH_EXCEPTIONS, type) ?? []) as Type[];
    return caught.length === 0 || caught.some((each) => error instanceof each);
  });
}
