import type { Clock, Timer } from '../../engine/lock-provider.js';
import type { RedisConnection } from './redis-client.js';

/**
 * Gives a connection up that is not ready `patience` ms after its socket has opened: ioredis limits the time to open the socket,
 * and then waits without end for the answers of the handshake. Answers what takes the timer down.
 */
export function limitHandshake(connection: RedisConnection, clock: Clock, patience: number): () => void {
  let timer: Timer | undefined;
  const end = (): void => {
    if (timer !== undefined) clock.clearTimer(timer);
    timer = undefined;
  };
  connection.on('connect', () => {
    end();
    timer = clock.setTimer(() => {
      // After a blocked event loop timers run before sockets are read, so what has arrived is read first.
      timer = clock.setTimer(() => {
        timer = undefined;
        connection.disconnect(true);
      }, 1);
    }, patience);
  });
  connection.on('ready', end);
  connection.on('close', end);
  return end;
}
