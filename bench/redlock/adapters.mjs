// How each of the other libraries acquires and releases one lock on several servers, with its defaults.
import { Redis } from 'ioredis';
import { Redlock } from '../peers/node_modules/@sesamecare-oss/redlock/build/index.js';
import Redlock5 from '../peers/node_modules/redlock/dist/esm/index.js';
import Redlock4 from '../peers/node_modules/redlock4/redlock.js';

const LEASE = 10_000;

/** By name: creates a candidate on the servers at these ports. */
export const peers = {
  'redlock 4': (ports) =>
    peer(ports, (clients) => {
      const redlock = new Redlock4(clients);
      redlock.on('clientError', () => undefined);
      return async (key) => {
        const lock = await redlock.lock(`redlock4:${key}`, LEASE);
        return () => lock.unlock();
      };
    }),
  'redlock 5 beta': (ports) => peer(ports, (clients) => acquireWith(new Redlock5(clients))),
  '@sesamecare-oss/redlock': (ports) => peer(ports, (clients) => acquireWith(new Redlock(clients))),
};

async function peer(ports, make) {
  const clients = ports.map((port) => new Redis(port));
  await Promise.all(clients.map((client) => client.ping()));
  for (const client of clients) client.on('error', () => undefined);
  return { acquire: make(clients) };
}

function acquireWith(redlock) {
  return async (key) => {
    const lock = await redlock.acquire([`redlock:${key}`], LEASE);
    return () => lock.release();
  };
}
