import type { Clock, Timer } from '../../api/clock.js';
import { backOff, type RedisConnection } from './redis-client.js';

/**
 * Keeps a connection trying, where ioredis would stand still. Answers what ends it, to be called before the connection is closed.
 *
 * ioredis limits the time to open a socket, and then waits without end for the answers of the handshake: so it is given up that is
 * not ready `patience` ms after its socket has opened. And ioredis ends for good when a Sentinel tells of a fail-over while it asks
 * where the master is, since `disconnect()` makes that ask fail (seen: a provider that was unavailable until its process was
 * restarted): so it is connected again.
 */
export function persevere(connection: RedisConnection, clock: Clock, patience: number): () => void {
  let handshake: Timer | undefined;
  let revival: Timer | undefined;
  let ends = 0;
  let isOver = false;

  const endHandshake = (): void => {
    if (handshake !== undefined) clock.clearTimer(handshake);
    handshake = undefined;
  };
  connection.on('connect', () => {
    endHandshake();
    handshake = clock.setTimer(() => {
      // After a blocked event loop timers run before sockets are read, so what has arrived is read first.
      handshake = clock.setTimer(() => {
        handshake = undefined;
        connection.disconnect(true);
      }, 1);
    }, patience);
  });
  connection.on('close', endHandshake);
  connection.on('ready', () => {
    endHandshake();
    ends = 0;
  });
  connection.on('end', () => {
    if (isOver) return;
    ends += 1;
    revival = clock.setTimer(() => {
      // What becomes of it is told by its events.
      connection.connect().catch(() => undefined);
    }, backOff(ends));
  });

  return () => {
    isOver = true;
    endHandshake();
    if (revival !== undefined) clock.clearTimer(revival);
  };
}
