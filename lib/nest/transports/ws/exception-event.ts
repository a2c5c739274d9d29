import type { LockError } from '../../../api/errors.js';
import { toMessageError } from '../message-error.js';

/** A client of socket.io. */
interface Emitter {
  emit(event: string, data: unknown): void;
}

/** A client of `ws`, and of whatever else follows the standard of the browsers. */
interface NativeSocket {
  readonly readyState: number;
  send(message: string): void;
}

/**
 * Sends the `exception` event that Nest sends for a `WsException`. By what the client can do, as Nest does it itself: a
 * client of `ws` has an `emit`, too, which notifies only this process.
 */
export function sendException(client: Emitter | NativeSocket, error: LockError): void {
  const data = toMessageError(error);
  if ('readyState' in client && typeof client.readyState === 'number') {
    client.send(JSON.stringify({ event: 'exception', data }));
  } else {
    (client as Emitter).emit('exception', data);
  }
}
