// The packages that the table compares, ours first. Each is opened as one process of an application would open it.
import 'reflect-metadata';
import * as common from '@nestjs/common';
import * as core from '@nestjs/core';
import { readFileSync } from 'node:fs';
import * as exported from 'nestjs-distributed-lock';
import { MemcachedLockProvider } from 'nestjs-distributed-lock/memcached';
import { RedisLockProvider } from 'nestjs-distributed-lock/redis';
import { RedlockLockProvider } from 'nestjs-distributed-lock/redlock';
import { TypeOrmVersionLockProvider } from 'nestjs-distributed-lock/typeorm';
import { ZooKeeperLockProvider } from 'nestjs-distributed-lock/zookeeper';
import { DataSource } from 'typeorm';
import { startMemcached } from '../../test/servers/memcached-server.mjs';
import { startZooKeeper } from '../../test/servers/zookeeper-server.mjs';
import { ensurePeers } from '../peers/ensure-peers.mjs';
import { startApplication } from './nest.mjs';

const { currentLock, DistributedLock, DistributedLockModule, LockService, MemoryLockProvider } = exported;
const nest = { ...common, ...core };

const ours = {
  name: 'nestjs-distributed-lock',
  nest,
  exported: Object.keys(exported),
  lock: (lease, { by = 'name' } = {}) => DistributedLock(by === 'name' ? 'order:#{id}' : 'order:#{p0}', { lease }),
  signalInMethod: () => currentLock().signal,
  async open({ url, wait, controllers = [], provider = new RedisLockProvider({ url }) }) {
    const options = { provider, ...(wait && { defaults: { wait } }) };
    const app = await startApplication(nest, [DistributedLockModule.forRoot(options)], controllers);
    const locks = app.get(LockService);
    return {
      app,
      run: (key, lease, task) => locks.withLock(key, task, { lease }),
      runPassingLock: (key, lease, task) => locks.withLock(key, (lock) => lock.run(task), { lease }),
      acquire: async (key, lease) => {
        const grant = await locks.acquire(key, { lease });
        return { grant, release: () => grant.release() };
      },
      stop: () => app.close(),
    };
  },
  async openSemaphore({ url }, limit) {
    const app = await startApplication(nest, [
      DistributedLockModule.forRoot({ provider: new RedisLockProvider({ url }) }),
    ]);
    const locks = app.get(LockService);
    return {
      run: (key, lease, task) => locks.withLock(key, task, { lease, limit }),
      stop: () => app.close(),
    };
  },
  backends: {
    Redlock: ({ urls }) =>
      ours.open({ provider: new RedlockLockProvider({ nodes: urls.map((url) => ({ url })), maxLease: '30s' }) }),
    'memory of one process': () => ours.open({ provider: new MemoryLockProvider() }),
    'SQL (SQLite here)': async () => {
      const dataSource = await new DataSource({ type: 'sqljs' }).initialize();
      return ours.open({ provider: new TypeOrmVersionLockProvider({ dataSource, synchronize: true }) });
    },
    ZooKeeper: async ({ stopLater }) => {
      const server = await startZooKeeper();
      stopLater(() => server.stop());
      const opened = await ours.open({
        provider: new ZooKeeperLockProvider({ connectString: server.connectString }),
      });
      // Its locks live as long as the session.
      return { ...opened, run: (key, _, task) => opened.run(key, undefined, task) };
    },
    memcached: async ({ stopLater }) => {
      const server = await startMemcached();
      stopLater(() => server.stop());
      return ours.open({ provider: new MemcachedLockProvider({ server: server.address }) });
    },
  },
};

ensurePeers();
const { peers } = await import('../peers/behavior.mjs');

export const packages = [ours, ...peers];

/** A package's installed package.json and its folder. */
export function manifestOf({ name, package: folder = name }) {
  const file = name === ours.name ? '../../package.json' : `../peers/node_modules/${folder}/package.json`;
  return JSON.parse(readFileSync(new URL(file, import.meta.url), 'utf8'));
}
