import 'reflect-metadata';
import { once } from 'node:events';
import { Controller, Get, Module, Param } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Cron, ScheduleModule } from '@nestjs/schedule';
import { Redis } from 'ioredis';
import pg from 'pg';
import { startMemcached } from '../../test/servers/memcached-server.mjs';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { startPostgres } from '../../test/servers/sql-server.mjs';
import { startZooKeeper } from '../../test/servers/zookeeper-server.mjs';

const WARM_UPS = 20;

/**
 * The traced paths. Each receives the exports of the build and `walk`, which records the function that is passed to it.
 * A path returns when the servers it started have stopped.
 */
export const PATHS = {
  memory: lockOn(async ({ MemoryLockProvider }) => [new MemoryLockProvider()]),
  redis: lockOn(async ({ RedisLockProvider }) => {
    const server = await startRedisServer();
    return [new RedisLockProvider({ url: server.url }), server];
  }),
  redlock: lockOn(async ({ RedlockLockProvider }) => {
    const servers = await Promise.all([1, 2, 3].map(() => startRedisServer()));
    return [new RedlockLockProvider({ nodes: servers.map(({ url }) => ({ url })) }), ...servers];
  }),
  row: lockOn(onPostgres('SqlRowLockProvider')),
  version: lockOn(onPostgres('SqlVersionLockProvider')),
  advisory: lockOn(onPostgres('SqlAdvisoryLockProvider')),
  zookeeper: lockOn(async ({ ZooKeeperLockProvider }) => {
    const server = await startZooKeeper();
    return [new ZooKeeperLockProvider({ connectString: server.connectString }), server];
  }),
  memcached: lockOn(async ({ MemcachedLockProvider }) => {
    const server = await startMemcached();
    return [new MemcachedLockProvider({ server: server.address }), server];
  }),
  acquire: partOfLock(({ acquire }) => acquire),
  release: partOfLock(async ({ acquire }) => {
    const lock = await acquire();
    return () => lock.release();
  }),
  handoff: partOfLock(async ({ acquire, events }) => {
    const lock = await acquire();
    const waits = once(events, 'waiting');
    const next = acquire();
    await waits;
    return async () => {
      await lock.release();
      await next;
    };
  }),
  'sql statement': statement,
  reconnect,
  http,
  tick,
};

/** A lock on the provider that `make` creates, along with the servers that it has started. */
function lockOn(make) {
  return async (build, walk) => {
    const [provider, ...servers] = await make(build);
    const manager = await started(build, provider);
    await warmUp(manager);
    await walk(() => manager.withLock('key', () => undefined));
    await manager.stop();
    for (const server of servers) await server.stop();
  };
}

function onPostgres(name) {
  return async (build) => {
    const server = await startPostgres();
    return [new build[name]({ url: server.url, synchronize: true }), server];
  };
}

/** A part of a lock on Redis. The function that `prepare` returns is traced. */
function partOfLock(prepare) {
  return async (build, walk) => {
    const server = await startRedisServer();
    const manager = await started(build, new build.RedisLockProvider({ url: server.url }));
    const acquire = () => manager.acquire('key', { wait: 5_000 });
    await warmUp(manager);
    const run = await prepare({ acquire, events: manager.events });
    await walk(run);
    await manager.stop();
    await server.stop();
  };
}

/** From the core's call to the database driver. */
async function statement(build, walk) {
  const [provider, server] = await onPostgres('SqlRowLockProvider')(build);
  const manager = await started(build, provider);
  await warmUp(manager);
  const { query } = pg.Client.prototype;
  let sent;
  await walk(
    async () => {
      const isSent = new Promise((resolve) => (sent = resolve));
      const lock = manager.acquire('key');
      await isSent;
      return lock;
    },
    {
      from: 'providers/',
      until(stop) {
        pg.Client.prototype.query = function (...args) {
          stop();
          sent();
          return query.apply(this, args);
        };
      },
    },
  );
  pg.Client.prototype.query = query;
  await manager.stop();
  await server.stop();
}

/** From the loss of all Redis connections to the next lock. */
async function reconnect(build, walk) {
  const server = await startRedisServer();
  const manager = await started(build, new build.RedisLockProvider({ url: server.url }));
  await warmUp(manager);
  const admin = new Redis(server.port);
  await admin.client('SETNAME', 'admin');
  await walk(async () => {
    await admin.client('KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    await manager.withLock('key', () => undefined, { wait: 5_000 });
  });
  admin.disconnect();
  await manager.stop();
  await server.stop();
}

async function http({ DistributedLock, DistributedLockModule, RedisLockProvider }, walk) {
  class Orders {
    pay(id) {
      return Promise.resolve(id);
    }
  }
  decorate(Orders, 'pay', Get('pay/:id'), DistributedLock('order:#{id}', { wait: '2s' }));
  Param('id')(Orders.prototype, 'pay', 0);
  Reflect.defineMetadata('design:paramtypes', [String], Orders.prototype, 'pay');
  Controller()(Orders);
  const server = await startRedisServer();
  const provider = new RedisLockProvider({ url: server.url });
  const AppModule = moduleOf({ imports: [DistributedLockModule.forRoot({ provider })], controllers: [Orders] });
  const app = await NestFactory.create(AppModule, { logger: ['error'] });
  await app.listen(0);
  const url = `http://127.0.0.1:${app.getHttpServer().address().port}/pay/7`;
  const call = async () => (await fetch(url)).text();
  for (let round = 0; round < WARM_UPS; round += 1) await call();
  await walk(call);
  await app.close();
  await server.stop();
}

async function tick({ RunOnce, DistributedLockModule, RedisLockProvider }, walk) {
  let onRun;
  class Reports {
    report() {
      onRun?.();
      return Promise.resolve();
    }
  }
  decorate(Reports, 'report', Cron('* * * * * *'), RunOnce('report'));
  const server = await startRedisServer();
  const provider = new RedisLockProvider({ url: server.url });
  const AppModule = moduleOf({
    imports: [ScheduleModule.forRoot(), DistributedLockModule.forRoot({ provider })],
    providers: [Reports],
  });
  const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error'] });
  // A run ends when its lock is released, shortly after the task.
  const run = async () => {
    await new Promise((resolve) => (onRun = resolve));
    await new Promise((resolve) => setTimeout(resolve, 200));
  };
  await run();
  await run();
  await walk(run);
  await app.close();
  await server.stop();
}

async function started({ LockManager }, provider) {
  const manager = new LockManager({ providers: { default: provider } });
  await manager.start();
  return manager;
}

async function warmUp(manager) {
  for (let round = 0; round < WARM_UPS; round += 1) await manager.withLock('key', () => undefined);
}

function decorate({ prototype }, name, ...decorators) {
  const descriptor = Object.getOwnPropertyDescriptor(prototype, name);
  const decorated = decorators.reduceRight((last, decorator) => decorator(prototype, name, last) ?? last, descriptor);
  Object.defineProperty(prototype, name, decorated);
}

function moduleOf(metadata) {
  class AppModule {}
  Module(metadata)(AppModule);
  return AppModule;
}
