// An instance of an application that migrates from another package to this one. It locks like its generation: `old`,
// `both`, or `new`. While it holds the lock, it increments a counter in Redis, which reveals two instances inside at a
// time.
import 'reflect-metadata';
import { randomInt } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { decorateMethod } from '../../bench/behavior/nest.mjs';
import { peers } from '../../bench/peers/behavior.mjs';

const LEASE = 10_000;
// Wait indefinitely and poll often.
const PATIENT = {
  murlock: { wait: 10, maxAttempts: 1_000 },
  'nestjs-redlock-universal': { retryDelay: 10, retryAttempts: 1_000 },
  'redlock 5 beta': { retryDelay: 10, retryJitter: 5, retryCount: -1 },
};

const [, , library, url, rival, generation] = process.argv;
const load = (file) => import(pathToFileURL(join(library, file)).href);
const { DistributedLock, DistributedLockModule, LockService } = await load('index.js');
const { RedisLockProvider } = await load('providers/redis/index.js');

const redis = new Redis(url);
const connect = (at) => new Redis(at);
const peer = peers.find(({ name }) => name === rival);
const [isOld, isNew] = [generation !== 'new', generation !== 'old'];
const module = DistributedLockModule.forRoot({ provider: new RedisLockProvider({ url }), defaults: { wait: '60s' } });
const call = peer.lock ? await decorated() : await wrapped();

async function inside() {
  if ((await redis.incr('inside')) > 1) await redis.incr('collisions');
  await sleep(1);
  await redis.decr('inside');
  await redis.incr(`visits:${generation}`);
}

/** A service method with this package's decorator above the other one's. */
async function decorated() {
  class Orders {
    async pay(_id) {
      await inside();
    }
  }
  decorateMethod(Orders, 'pay', [
    ...(isNew ? [DistributedLock('order:#{p0}')] : []),
    ...(isOld ? [peer.lock(LEASE, { by: 'position' })] : []),
  ]);
  const imports = [...(isNew ? [module] : []), ...(isOld ? [peer.moduleOf({ url, connect, ...PATIENT[rival] })] : [])];
  const app = await start({ imports, providers: [Orders] });
  return () => app.get(Orders).pay('1');
}

/** A function under this package's lock, and inside it under the other one's. */
async function wrapped() {
  const old = await peer.open({ url, connect, wait: 60_000, options: PATIENT[rival] });
  const underOld = isOld ? () => old.run('order:1', LEASE, inside) : inside;
  if (!isNew) return underOld;
  const locks = (await start({ imports: [module] })).get(LockService);
  return () => locks.withLock('order:1', underOld);
}

async function start(metadata) {
  class App {}
  Module(metadata)(App);
  return NestFactory.createApplicationContext(App, { logger: false, abortOnError: false });
}

process.on('message', () => process.exit());
process.on('disconnect', () => process.exit());
process.send('ready');
for (;;) {
  await call();
  await sleep(randomInt(6));
}
