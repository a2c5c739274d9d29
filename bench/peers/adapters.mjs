// The other libraries, each with its defaults: how they take and give back one lock. Each gets a client of its own.
// (simple-redis-mutex 3 works with node-redis alone, so it cannot be measured beside the raw ioredis client.)
import { Redlock } from '@sesamecare-oss/redlock';
import { Verrou } from '@verrou/core';
import { redisStore } from '@verrou/core/drivers/redis';
import { Mutex } from 'redis-semaphore';
import RedlockBeta from 'redlock';

const LEASE = 10_000;

/** By name: makes a function that takes the lock `key` and answers how to release it. */
export const peers = {
  'redlock 5 beta': (client) => redlock(new RedlockBeta([client])),
  '@sesamecare-oss/redlock': (client) => redlock(new Redlock([client])),
  'redis-semaphore': (client) => async (key) => {
    const mutex = new Mutex(client, `semaphore:${key}`);
    await mutex.acquire();
    return () => mutex.release();
  },
  '@verrou/core': (client) => {
    const verrou = new Verrou({ default: 'redis', stores: { redis: { driver: redisStore({ connection: client }) } } });
    return async (key) => {
      const lock = verrou.createLock(`verrou:${key}`, LEASE);
      await lock.acquire();
      return () => lock.release();
    };
  },
};

function redlock(locks) {
  return async (key) => {
    const lock = await locks.acquire([`redlock:${key}`], LEASE);
    return () => lock.release();
  };
}
