import { NotSent } from './client/redis-connection.js';
import type { Servers } from './servers.js';

/**
 * Sends a command of its own, without the script of the locks, to the server that keeps this lock or counter. Those of one tick travel together.
 *
 * @param kept there, in words
 */
export function plainCommand(
  servers: Servers,
  place: string,
  kept: string,
  command: string,
  ...args: string[]
): Promise<unknown> {
  const { connection } = servers.batcherOf(place);
  return new Promise((resolve, reject) => {
    if (connection) connection.send(command, args, resolve, reject);
    else reject(new NotSent(`No server is known to keep ${kept}.`));
  });
}
