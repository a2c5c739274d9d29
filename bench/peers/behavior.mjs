// The other packages, called as their users would, with their defaults unless a program needs more.
import { createRequire } from 'node:module';
import 'reflect-metadata';
import * as common from '@nestjs/common';
import * as core from '@nestjs/core';
import * as kitExports from '@nestjs-redis/lock';
import * as murlockExports from 'murlock';
import * as universalExports from 'nestjs-redlock-universal';
import * as semaphoreExports from 'redis-semaphore';
import { createClient } from 'redis5';
import * as redlockExports from 'redlock';
import { MemoryAdapter } from 'redlock-universal';
import { startApplication } from '../behavior/nest.mjs';

const { MurLock, MurLockModule, MurLockService } = murlockExports;
const { IoredisAdapter, Redlock: LockByRedlock, RedlockModule, RedlockService } = universalExports;
const { Mutex, RedlockMutex, Semaphore } = semaphoreExports;
const { default: Redlock } = redlockExports;
const nest = { ...common, ...core };
// Node can't import its ES module, whose files refer to each other without an extension.
const anchanExports = createRequire(import.meta.url)('@anchan828/nest-redlock');

const murlock = {
  name: 'murlock',
  nest,
  exported: Object.keys(murlockExports),
  lock: (lease, { by = 'name' } = {}) => MurLock(lease, by === 'name' ? 'id' : '0'),
  // murlock has no defaults. This is the configuration from its README, except for the log.
  moduleOf: ({ url, ...options }) =>
    MurLockModule.forRoot({ redisOptions: { url }, wait: 1_000, maxAttempts: 3, logLevel: 'error', ...options }),
  async open({ url, wait = 6_000, controllers = [] }) {
    // The pauses are 1 s, 2 s, 3 s, …
    let maxAttempts = 1;
    while (((maxAttempts + 1) * maxAttempts) / 2 < wait / 1_000) maxAttempts += 1;
    const app = await startApplication(nest, [murlock.moduleOf({ url, maxAttempts })], controllers);
    const service = app.get(MurLockService);
    return {
      app,
      run: (key, lease, task) => service.runWithLock(key, lease, () => task({})),
      stop: () => app.close(),
    };
  },
};

const redlockUniversal = {
  name: 'nestjs-redlock-universal',
  nest,
  exported: Object.keys(universalExports),
  keysBy: 'function',
  lock: (lease) => LockByRedlock({ key: (id) => `order:${id}`, ttl: lease }),
  moduleOf: ({ url, connect, nodes = [new IoredisAdapter(connect(url))], ...options }) =>
    RedlockModule.forRoot({ nodes, ...options }),
  async open({ url, connect, wait, controllers = [], nodes }) {
    const module = redlockUniversal.moduleOf({ url, connect, nodes, ...(wait && { retryAttempts: wait / 100 }) });
    const app = await startApplication(nest, [module], controllers);
    const service = app.get(RedlockService);
    return {
      app,
      run: (key, lease, task) => service.using(key, (signal) => task({ signal }), { ttl: lease }),
      acquire: async (key, lease) => {
        const grant = await service.acquire(key, lease);
        return { grant, release: () => service.release(key, grant) };
      },
      stop: () => app.close(),
    };
  },
  backends: {
    Redlock: ({ urls, connect }) =>
      redlockUniversal.open({ nodes: urls.map((url) => new IoredisAdapter(connect(url))) }),
    'memory of one process': () => redlockUniversal.open({ nodes: [new MemoryAdapter()] }),
  },
};

const nestRedlock = {
  name: '@anchan828/nest-redlock',
  nest,
  exported: Object.keys(anchanExports),
  keysBy: 'function',
  lock: (lease) => anchanExports.Redlock((_, id) => `order:${id}`, lease),
  async open({ url, connect, wait, controllers = [], clients = [connect(url)] }) {
    const settings = wait && { retryCount: wait / 200 };
    const module = anchanExports.RedlockModule.register({ clients, settings, isGlobal: true });
    const app = await startApplication(nest, [module], controllers);
    const service = app.get(anchanExports.RedlockService);
    service.on('error', () => undefined);
    return {
      app,
      run: (key, lease, task) => service.using([key], lease, (signal) => task({ signal })),
      acquire: async (key, lease) => {
        const grant = await service.acquire([key], lease);
        return { grant, release: () => grant.release() };
      },
      stop: () => app.close(),
    };
  },
  backends: {
    Redlock: ({ urls, connect }) => nestRedlock.open({ clients: urls.map(connect) }),
  },
};

const redisKit = {
  name: '@nestjs-redis/lock',
  nest,
  exported: Object.keys(kitExports),
  keysBy: 'nothing',
  lock: (lease) => kitExports.Redlock('orders', lease),
  async open({ url, urls = [url], wait, controllers = [] }) {
    const clients = urls.map((each) => createClient({ url: each }).on('error', () => undefined));
    await Promise.all(clients.map((client) => client.connect()));
    const redlockConfig = wait && { maxRetryAttempts: wait / 200 };
    const module = kitExports.RedlockModule.forRoot({ clients, redlockConfig, isGlobal: true });
    const app = await startApplication(nest, [module], controllers);
    const service = app.get(kitExports.RedlockService);
    return {
      app,
      run: (key, lease, task) => service.withLock(key, lease, () => task({})),
      acquire: async (key, lease) => {
        const grant = await service.acquire(key, lease);
        return { grant, release: () => grant.release() };
      },
      async stop() {
        await app.close();
        for (const client of clients) client.destroy();
      },
    };
  },
  backends: {
    Redlock: ({ urls }) => redisKit.open({ urls }),
  },
};

const redlock5 = {
  name: 'redlock 5 beta',
  package: 'redlock',
  exported: Object.keys(redlockExports),
  async open({ url, connect, wait, clients = [connect(url)], options }) {
    const locks = new Redlock(clients, { ...(wait && { retryCount: wait / 200 }), ...options });
    locks.on('error', () => undefined);
    return {
      run: (key, lease, task) => locks.using([key], lease, (signal) => task({ signal })),
      acquire: async (key, lease) => {
        const grant = await locks.acquire([key], lease);
        return { grant, release: () => grant.release() };
      },
      stop: () => undefined,
    };
  },
  backends: {
    Redlock: ({ urls, connect }) => redlock5.open({ clients: urls.map(connect) }),
  },
};

const semaphore = {
  name: 'redis-semaphore',
  exported: Object.keys(semaphoreExports),
  async open({ url, connect, wait, make }) {
    const client = url && connect(url);
    make ??= (key, options) => new Mutex(client, key, options);
    const acquire = async (key, lease) => {
      // Without this callback, a loss is an uncaught exception.
      const loss = new AbortController();
      const options = {
        lockTimeout: lease,
        onLockLost: (error) => loss.abort(error),
        ...(wait && { acquireTimeout: wait }),
      };
      const grant = make(key, options);
      await grant.acquire();
      return { grant, signal: loss.signal, release: () => grant.release() };
    };
    return {
      acquire,
      async run(key, lease, task) {
        const { signal, release } = await acquire(key, lease);
        try {
          return await task({ signal });
        } finally {
          await release();
        }
      },
      stop: () => undefined,
    };
  },
  openSemaphore({ url, connect }, limit) {
    const client = connect(url);
    return semaphore.open({ make: (key, options) => new Semaphore(client, key, limit, options) });
  },
  backends: {
    Redlock: ({ urls, connect }) => {
      const clients = urls.map(connect);
      return semaphore.open({ make: (key, options) => new RedlockMutex(clients, key, options) });
    },
  },
};

export const peers = [murlock, redlockUniversal, nestRedlock, redisKit, redlock5, semaphore];
