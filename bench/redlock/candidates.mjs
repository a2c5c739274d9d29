// What is measured: each candidate makes a function that takes the lock `key` and answers how to release it.
import { Redis } from 'ioredis';
import { LockManager } from 'nestjs-distributed-lock';
import { RedlockProvider } from 'nestjs-distributed-lock/redlock';
import { Redlock } from '../peers/node_modules/@sesamecare-oss/redlock/build/index.js';
import Redlock5 from '../peers/node_modules/redlock/dist/esm/index.js';
import Redlock4 from '../peers/node_modules/redlock4/redlock.js';

const LEASE = 10_000;
export const OURS = 'nestjs-distributed-lock';

const makers = {
  [OURS]: async (ports) => {
    const nodes = ports.map((port) => ({ url: `redis://127.0.0.1:${port}` }));
    const locks = new LockManager({ providers: { redlock: new RedlockProvider({ nodes, maxLease: '30s' }) } });
    await locks.start();
    const take = async (key) => {
      const lock = await locks.acquire(key, { wait: '60s', lease: LEASE });
      return () => lock.release();
    };
    return { take, stop: () => locks.stop() };
  },
  'redlock 4': (ports) =>
    peer(ports, (clients) => {
      const redlock = new Redlock4(clients);
      redlock.on('clientError', () => undefined);
      return async (key) => {
        const lock = await redlock.lock(`redlock4:${key}`, LEASE);
        return () => lock.unlock();
      };
    }),
  'redlock 5 beta': (ports) => peer(ports, (clients) => takeOf(new Redlock5(clients))),
  '@sesamecare-oss/redlock': (ports) => peer(ports, (clients) => takeOf(new Redlock(clients))),
};

export const names = Object.keys(makers);

export function candidate(name, ports) {
  return makers[name](ports);
}

async function peer(ports, make) {
  const clients = ports.map((port) => new Redis(port));
  await Promise.all(clients.map((client) => client.ping()));
  for (const client of clients) client.on('error', () => undefined);
  return {
    take: make(clients),
    stop: () => {
      for (const client of clients) client.disconnect();
    },
  };
}

function takeOf(redlock) {
  return async (key) => {
    const lock = await redlock.acquire([`redlock:${key}`], LEASE);
    return () => lock.release();
  };
}
