// How each of the other libraries acquires and releases one lock, with its defaults.
import { setTimeout as sleep } from 'node:timers/promises';
import { Redlock } from '@sesamecare-oss/redlock';
import { Verrou } from '@verrou/core';
import { redisStore } from '@verrou/core/drivers/redis';
import { AsyncStorageManager } from 'murlock/dist/als/als-manager.js';
import { AsyncStorageService } from 'murlock/dist/als/als.service.js';
import { MurLockService } from 'murlock';
import { createClient } from 'redis';
import { Mutex, Semaphore } from 'redis-semaphore';
import RedlockBeta from 'redlock';
import { createLock, IoredisAdapter } from 'redlock-universal';
import Redlock4 from 'redlock4';
import { lock as simpleLock } from 'simple-redis-mutex';

const LEASE = 10_000;

/** The same for a limit, with the only library that supports it. */
export function semaphoreOf(client, limit) {
  return async (key) => {
    const semaphore = new Semaphore(client, `limited:${key}`, limit);
    await semaphore.acquire();
    return () => semaphore.release();
  };
}

/**
 * By name: creates a function that acquires the lock `key` and resolves to a function that releases it. Each receives
 * its own ioredis client. Libraries that work only with node-redis open a client at `port`.
 */
export const peers = {
  'redlock 4': (client) => {
    const locks = new Redlock4([client]);
    return async (key) => {
      const lock = await locks.lock(`redlock4:${key}`, LEASE);
      return () => lock.unlock();
    };
  },
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
  'redlock-universal': (client) => {
    const adapter = new IoredisAdapter(client);
    return async (key) => {
      const lock = createLock({ adapter, key: `universal:${key}`, ttl: LEASE });
      const handle = await lock.acquire();
      return () => lock.release(handle);
    };
  },
  murlock: async (_, port) => {
    // The configuration from its README, except for the log, which would be measured, too.
    const redisOptions = { url: `redis://127.0.0.1:${port}` };
    const options = { redisOptions, wait: 1_000, maxAttempts: 3, logLevel: 'error' };
    const service = new MurLockService(options, new AsyncStorageService(new AsyncStorageManager()));
    await service.onModuleInit();
    // murlock runs a function under the lock and returns nothing to release, so the function ends when the caller
    // releases.
    const acquire = (key) =>
      new Promise((acquired, failed) => {
        const task = () => new Promise((end) => acquired(() => (end(), run)));
        const run = service.runWithLock(`murlock:${key}`, LEASE, task);
        run.catch(failed);
      });
    return Object.assign(acquire, { stop: () => service.onApplicationShutdown() });
  },
  'simple-redis-mutex': async (_, port) => {
    const client = await createClient({ url: `redis://127.0.0.1:${port}` }).connect();
    const acquire = (key) => simpleLock(client, key, { timeout: LEASE });
    const stop = async () => {
      await client.close();
      // The library then ends its subscription, and offers nothing to wait for.
      await sleep(200);
    };
    return Object.assign(acquire, { stop });
  },
};

function redlock(locks) {
  return async (key) => {
    const lock = await locks.acquire([`redlock:${key}`], LEASE);
    return () => lock.release();
  };
}
