// One process of the run that dashboard.mjs draws. It serves its metrics on METRICS_PORT.
import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Cron, ScheduleModule } from '@nestjs/schedule';
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import { MeterProvider } from '@opentelemetry/sdk-metrics';
import { DistributedLock, DistributedLockModule, LockError, RunAsLeader, RunOnce } from 'nestjs-distributed-lock';
import { DistributedLockInstrumentation } from 'nestjs-distributed-lock/opentelemetry';
import { RedisLockProvider } from 'nestjs-distributed-lock/redis';

const { INSTANCE: instance, METRICS_PORT, REDIS_URL: url } = process.env;
const instrumentation = new DistributedLockInstrumentation();
const exporter = new PrometheusExporter({ port: Number(METRICS_PORT), host: '127.0.0.1' });
instrumentation.setMeterProvider(new MeterProvider({ readers: [exporter] }));
instrumentation.enable();

const upTo = (bound) => Math.floor(Math.random() * bound);

class Shop {
  pay(id) {
    return sleep(20 + (id % 60));
  }
  restock(item) {
    return sleep(200 + item.length);
  }
  report() {
    return sleep(400);
  }
  ship(id) {
    return sleep(6_000 + id);
  }
  async clean() {
    await sleep(300);
  }
  async import() {
    await sleep(15_000); // longer than its period
  }
  bill({ signal }) {
    return new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  }
}
decorate('pay', DistributedLock('order:#{id}'));
decorate('restock', DistributedLock('stock:#{item}', { wait: '1500ms' }));
decorate('report', DistributedLock('report', { wait: 0, onBusy: 'skip' }));
decorate('ship', DistributedLock('parcel:#{id}'));
decorate('clean', RunOnce('cleanup'));
decorate('clean', Cron('*/5 * * * * *'));
decorate('import', RunOnce('import'));
decorate('import', Cron('*/5 * * * * *'));
decorate('bill', RunAsLeader('billing'));

const locks = DistributedLockModule.forRoot({
  namespace: 'shop',
  instance,
  provider: new RedisLockProvider({ url }),
  defaults: { lease: '5s', wait: '2s' },
});
class ShopModule {}
Module({ imports: [locks, ScheduleModule.forRoot()], providers: [Shop] })(ShopModule);
const app = await NestFactory.createApplicationContext(ShopModule, { logger: false });
const shop = app.get(Shop);
void Promise.all([
  ...repeat(8, () => sleep(upTo(100)).then(() => shop.pay(upTo(50)))),
  ...repeat(5, () => sleep(upTo(400)).then(() => shop.restock('lamp'))),
  ...repeat(1, () => sleep(upTo(600)).then(() => shop.report())),
  ...repeat(4, () => shop.ship(upTo(1_000))),
]);
process.on('disconnect', () => process.exit());
process.send('ready');

function decorate(method, decorator) {
  const descriptor = Object.getOwnPropertyDescriptor(Shop.prototype, method);
  decorator(Shop.prototype, method, descriptor);
  Object.defineProperty(Shop.prototype, method, descriptor);
}

/** Starts callers that repeat their call, whatever happens to their locks. */
function repeat(callers, call) {
  return Array.from({ length: callers }, async () => {
    for (;;)
      await call().catch((error) => {
        if (!LockError.is(error)) throw error;
      });
  });
}
