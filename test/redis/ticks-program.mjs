// One process of a fleet with a job that has ticks. It reports when a run begins and ends, which tick was recorded for
// it, and why it skipped one.
// argv: the folder of the compiled library, the URL of Redis, and as JSON the cron expression, the options of @RunOnce,
// and by how many ms its clock is ahead.
const [, , folder, url, settings] = process.argv;
const { expression, options, ahead = 0 } = JSON.parse(settings);

// Replaces Date before any module reads it.
const RealDate = Date;
globalThis.Date = class extends RealDate {
  constructor(...args) {
    super(...(args.length === 0 ? [RealDate.now() + ahead] : args));
  }
  static now() {
    return RealDate.now() + ahead;
  }
};

await import('reflect-metadata');
const { Injectable, Module } = await import('@nestjs/common');
const { NestFactory } = await import('@nestjs/core');
const { Cron, ScheduleModule } = await import('@nestjs/schedule');
const library = (file) => import(`${folder}/${file}.js`);
const { RunOnce } = await library('nest/decorators/run-once.decorator');
const { DistributedLockModule } = await library('nest/module/distributed-lock.module');
const { LockService } = await library('nest/service/lock.service');
const { LockAdmin } = await library('core/lock-admin');
const { RedisLockProvider } = await library('providers/redis/index');

let patience = false;
let goOn;
process.on('message', ({ order }) => {
  if (order === 'call') void app.get(Jobs).report();
  if (order === 'linger') patience = true;
  if (order === 'go on') goOn?.();
});

class Jobs {
  async report() {
    const tick = await recorded();
    process.send({ event: 'begin', ...tick });
    if (patience) await new Promise((resolve) => (goOn = resolve));
    process.send({ event: 'end', ...tick });
  }
}
for (const decorator of [Cron(expression, { timeZone: 'UTC' }), RunOnce('report', options)]) {
  const descriptor = Object.getOwnPropertyDescriptor(Jobs.prototype, 'report');
  decorator(Jobs.prototype, 'report', descriptor);
  Object.defineProperty(Jobs.prototype, 'report', descriptor);
}
Injectable()(Jobs);

class AppModule {}
Module({
  imports: [
    DistributedLockModule.forRoot({
      provider: new RedisLockProvider({ url }),
      instance: String(process.pid),
      defaults: { lease: '2s' },
      // The parent ends a run, which takes a while on a busy machine.
      shutdownGrace: '2m',
    }),
    ScheduleModule.forRoot(),
  ],
  providers: [Jobs],
})(AppModule);

const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error'], abortOnError: false });
app.enableShutdownHooks(['SIGTERM'], { useProcessExit: true });
const { events } = app.get(LockService);
events.on('skipped', ({ reason }) => process.send({ event: 'skipped', reason }));
events.on('run-abandoned', ({ again, instance }) => process.send({ event: 'abandoned', again, instance }));
process.on('disconnect', () => process.exit());
process.send({ event: 'ready' });

async function recorded() {
  for await (const { tick, attempt } of app.get(LockAdmin).jobs()) return { tick: tick.getTime(), attempt };
}
