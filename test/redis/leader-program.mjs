// One process of a fleet with a leader. It writes to a fenced resource while it leads, and once more after its signal
// has aborted, like a task that ignores the signal.
// argv: the folder of the compiled library, the URL of Redis, the lease in ms.
import 'reflect-metadata';
import { setTimeout as pause } from 'node:timers/promises';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Interval, ScheduleModule } from '@nestjs/schedule';
import { Redis } from 'ioredis';

const [, , folder, url, lease] = process.argv;
const library = (file) => import(`${folder}/${file}.js`);
const { RunAsLeader } = await library('nest/decorators/run-as-leader.decorator');
const { OnlyLeader } = await library('nest/decorators/only-leader.decorator');
const { DistributedLockModule } = await library('nest/module/distributed-lock.module');
const { currentLock } = await library('nest/service/current-lock');
const { LockService } = await library('nest/service/lock.service');
const { RedisLockProvider } = await library('providers/redis/index');

const resource = new Redis(url);
// Remembers the largest token, as text: tokens are too long for Lua numbers, and have equal length.
const WRITE = `
  local token = ARGV[1]
  if token < (redis.call('GET', 'resource:token') or '') then return 'refused' end
  redis.call('SET', 'resource:token', token)
  redis.call('RPUSH', 'resource:writes', token)
  return 'accepted'`;
const write = (token) => resource.eval(WRITE, 0, String(token));

class Worker {
  async run({ fencingToken, signal }) {
    const token = String(fencingToken);
    process.send({ event: 'elected', token });
    let written = false;
    while (!signal.aborted) {
      if ((await write(token)) === 'accepted' && !written) {
        written = true;
        process.send({ event: 'written', token });
      }
      await pause(2);
    }
    process.send({ event: 'aborted', token, reason: signal.reason.reason });
    process.send({ event: 'late write', token, outcome: await write(token) });
  }

  async report() {
    process.send({ event: 'report', token: String(currentLock().fencingToken) });
  }
}
decorate('run', RunAsLeader('billing', { lease: Number(lease) }));
decorate('report', OnlyLeader('billing'));
decorate('report', Interval(20));
Injectable()(Worker);

function decorate(name, decorator) {
  const descriptor = Object.getOwnPropertyDescriptor(Worker.prototype, name);
  decorator(Worker.prototype, name, descriptor);
  Object.defineProperty(Worker.prototype, name, descriptor);
}

class AppModule {}
Module({
  imports: [ScheduleModule.forRoot(), DistributedLockModule.forRoot({ provider: new RedisLockProvider({ url }) })],
  providers: [Worker],
})(AppModule);

const app = await NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false });
app.enableShutdownHooks(['SIGTERM'], { useProcessExit: true });
const { events } = app.get(LockService);
events.on('resigned', ({ reason }) => process.send({ event: 'resigned', reason }));
events.on('skipped', () => process.send({ event: 'skipped' }));
process.on('disconnect', () => process.exit());
process.send({ event: 'ready' });
