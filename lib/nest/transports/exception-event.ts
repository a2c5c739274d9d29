import type { ExecutionContext, Type } from '@nestjs/common';
import { EXCEPTION_FILTERS_METADATA, FILTER_CATCH_EXCEPTIONS } from '@nestjs/common/constants.js';
import type { LockError } from '../../api/errors.js';
import { toMessageError } from './client-error.js';

/** A client of socket.io. */
interface Emitter {
  emit(event: string, data: unknown): void;
}

/** A client of `ws`, or of another library that follows the browser standard. */
interface NativeSocket {
  readonly readyState: number;
  send(message: string): void;
}

/**
 * Sends the `exception` event that Nest sends for a `WsException`. Like Nest, it chooses based on the client's capabilities: a `ws`
 * client also has an `emit`, which notifies only this process.
 */
export function sendException(client: Emitter | NativeSocket, error: LockError): void {
  const data = toMessageError(error);
  if ('readyState' in client && typeof client.readyState === 'number') {
    client.send(JSON.stringify({ event: 'exception', data }));
  } else {
    (client as Emitter).emit('exception', data);
  }
}

/** Whether a filter of the handler or of its gateway catches the error. A filter without a type catches all errors. */
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
