// One process of a fleet with a scheduled job, which runs until its parent ends the run. It reports when a run begins
// and ends, and each skipped run.
// argv: the folder of the compiled library, the URL of Redis, and 'runOnce' for a process that calls the service
// instead of using the decorator.
import 'reflect-metadata';
import { Inject, Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Interval, ScheduleModule } from '@nestjs/schedule';

const [, , folder, url, asks] = process.argv;
const library = (file) => import(`${folder}/${file}.js`);
const { RunOnce } = await library('nest/decorators/run-once.decorator');
const { DistributedLockModule } = await library('nest/module/distributed-lock.module');
const { currentLock } = await library('nest/service/current-lock');
const { LockService } = await library('nest/service/lock.service');
const { RedisLockProvider } = await library('providers/redis/index');

let patience = 0;
let goOn;
process.on('message', ({ order }) => {
  if (order === 'linger') patience = Infinity;
  if (order === 'go on') {
    patience = 0;
    goOn?.();
  }
});

class Jobs {
  constructor(locks) {
    this.locks = locks;
  }

  async report() {
    const token = String(currentLock().fencingToken);
    process.send({ event: 'begin', token });
    if (patience > 0) await new Promise((resolve) => (goOn = resolve));
    process.send({ event: 'end', token, held: currentLock().isHeld() });
  }

  async reportOnce() {
    await this.locks.runOnce('report', () => this.report(), { minHold: '1s' });
  }
}
Inject(LockService)(Jobs, undefined, 0);
decorate(asks === 'runOnce' ? 'reportOnce' : 'report', Interval(50));
if (asks !== 'runOnce') decorate('report', RunOnce('report', { minHold: '1s' }));
Injectable()(Jobs);

function decorate(name, decorator) {
  const descriptor = Object.getOwnPropertyDescriptor(Jobs.prototype, name);
  decorator(Jobs.prototype, name, descriptor);
  Object.defineProperty(Jobs.prototype, name, descriptor);
}

class AppModule {}
Module({
  imports: [
    ScheduleModule.forRoot(),
    DistributedLockModule.forRoot({
      provider: new RedisLockProvider({ url }),
      defaults: { lease: '6s' },
      // The parent ends a run, which takes a while on a busy machine.
      shutdownGrace: '2m',
    }),
  ],
  providers: [Jobs],
})(AppModule);

const app = await NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false });
app.enableShutdownHooks(['SIGTERM'], { useProcessExit: true });
app.get(LockService).events.on('skipped', () => process.send({ event: 'skipped' }));
process.on('disconnect', () => process.exit());
process.send({ event: 'ready' });
