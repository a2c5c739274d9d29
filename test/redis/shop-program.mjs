// An HTTP shop whose orders take as long as its parent lets them. It reports to its parent what it locks, and what is
// left when it exits.
// argv: the folder of the compiled library, and the URL of Redis unless its locks are in memory.
import 'reflect-metadata';
import { Controller, Module, Param, Post } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';

const [, , folder, url] = process.argv;
const library = (file) => import(`${folder}/${file}.js`);
const { DistributedLock } = await library('nest/decorators/distributed-lock.decorator');
const { DistributedLockModule } = await library('nest/module/distributed-lock.module');
const { LockAdmin } = await library('core/lock-admin');
const { LockService } = await library('nest/service/lock.service');

let opened = false;
const waiting = new Set();
const gate = () => (opened ? undefined : new Promise((resolve) => waiting.add(resolve)));

class Shop {
  async order(_id) {
    await gate();
    return 'sold';
  }
}
const descriptor = Object.getOwnPropertyDescriptor(Shop.prototype, 'order');
Param('id')(Shop.prototype, 'order', 0);
DistributedLock('item:#{p0}', { wait: '10m' })(Shop.prototype, 'order', descriptor);
Post('items/:id')(Shop.prototype, 'order', descriptor);
Object.defineProperty(Shop.prototype, 'order', descriptor);
Controller()(Shop);

const redis = url && (await library('providers/redis/index'));
class AppModule {}
Module({
  imports: [
    DistributedLockModule.forRoot({
      ...(redis && { provider: new redis.RedisLockProvider({ url }) }),
      shutdownGrace: '300ms',
    }),
  ],
  controllers: [Shop],
})(AppModule);

const app = await NestFactory.create(AppModule, { logger: false, abortOnError: false });
app.enableShutdownHooks(['SIGTERM'], { useProcessExit: true });
await app.listen(0, '127.0.0.1');
const [locks, admin] = [app.get(LockService), app.get(LockAdmin)];
const state = (event) => ({ event, held: admin.held().map(({ key }) => key), waiting: admin.waiting().length });
for (const name of ['waiting', 'acquired', 'released', 'lost']) {
  // Reports a moment later, when the counts are updated.
  locks.events.on(name, () => setImmediate(() => process.connected && process.send(state(name))));
}
// Work outside any request that ends only on abort.
void locks
  .withLock('background', ({ signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve)))
  .catch((error) => process.send({ ...state('background'), code: error.code }));
process.on('message', () => {
  opened = true;
  for (const resolve of waiting) resolve();
});
process.on('exit', () => process.send(state('exit')));
process.send({ ...state('ready'), url: await app.getUrl() });
