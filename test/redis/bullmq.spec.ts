import { BullModule, getQueueToken, Processor, WorkerHost } from '@nestjs/bullmq';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { DelayedError, type Job, type Queue, QueueEvents } from 'bullmq';
import { type BusyContext, currentLock, DistributedLock, DistributedLockModule, LockService } from '../../lib/index.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { until } from '../until.js';

let server: RedisServer;
beforeAll(async () => (server = await startRedisServer()));
afterAll(() => server.stop());

it('a BullMQ processor runs its job under the lock, and a busy lock fails the attempt', async () => {
  let running = 0;
  let most = 0;
  @Processor('orders', { concurrency: 8 })
  class OrderProcessor extends WorkerHost {
    @DistributedLock('order:#{job.data.orderId}', { wait: '1m' })
    override async process(job: Job<{ orderId: number }>) {
      if (job.data.orderId === 1) most = Math.max(most, ++running);
      await new Promise((resolve) => setTimeout(resolve, 5));
      if (job.data.orderId === 1) running -= 1;
      return currentLock().key;
    }
  }
  @Processor('hurried')
  class HurriedProcessor extends WorkerHost {
    @DistributedLock('order:#{job.data.orderId}', { wait: 0 })
    async process(job: Job<{ orderId: number }>) {
      return job.data.orderId;
    }
  }
  const connection = { host: '127.0.0.1', port: server.port };
  @Module({
    imports: [
      DistributedLockModule.forRoot({ provider: new RedisLockProvider({ url: server.url }) }),
      BullModule.forRoot({ connection }),
      BullModule.registerQueue({ name: 'orders' }, { name: 'hurried' }),
    ],
    providers: [OrderProcessor, HurriedProcessor],
  })
  class AppModule {}
  const app = await NestFactory.createApplicationContext(AppModule, { logger: false });
  const events = [new QueueEvents('orders', { connection }), new QueueEvents('hurried', { connection })] as const;
  try {
    await Promise.all(events.map((each) => each.waitUntilReady()));
    const queue = app.get<Queue>(getQueueToken('orders'));
    const jobs = await queue.addBulk([1, 1, 1, 1, 2].map((orderId) => ({ name: 'pay', data: { orderId } })));
    const keys = await Promise.all(jobs.map((job) => job.waitUntilFinished(events[0], 30_000)));
    expect(keys).toEqual(['order:1', 'order:1', 'order:1', 'order:1', 'order:2']);
    expect(most).toBe(1);

    await using lock = await app.get(LockService).acquire('order:7');
    const busy = await app.get<Queue>(getQueueToken('hurried')).add('pay', { orderId: 7 });
    await expect(busy.waitUntilFinished(events[1], 30_000)).rejects.toThrow(/"order:7"/);
    expect(lock.isHeld()).toBe(true);
  } finally {
    await Promise.all(events.map((each) => each.close()));
    await app.close();
  }
}, 90_000);

it('a busy job that moves itself back into its queue runs later, without using up an attempt', async () => {
  async function later({ args: [job, token] }: BusyContext): Promise<never> {
    await (job as Job).moveToDelayed(Date.now() + 50, token as string);
    throw new DelayedError();
  }
  let delays = 0;
  @Processor('parcels')
  class ParcelsProcessor extends WorkerHost {
    @DistributedLock('parcel:#{job.data.orderId}', { wait: 0, onBusy: later })
    async process(job: Job<{ orderId: number }>, _token?: string) {
      return `${job.data.orderId} after ${job.attemptsMade} failures`;
    }
  }
  const connection = { host: '127.0.0.1', port: server.port };
  @Module({
    imports: [
      DistributedLockModule.forRoot({ provider: new RedisLockProvider({ url: server.url }) }),
      BullModule.forRoot({ connection }),
      BullModule.registerQueue({ name: 'parcels' }),
    ],
    providers: [ParcelsProcessor],
  })
  class AppModule {}
  const app = await NestFactory.createApplicationContext(AppModule, { logger: false });
  const events = new QueueEvents('parcels', { connection });
  try {
    await events.waitUntilReady();
    events.on('delayed', () => (delays += 1));
    const lock = await app.get(LockService).acquire('parcel:7', { lease: '1m' });
    const job = await app.get<Queue>(getQueueToken('parcels')).add('ship', { orderId: 7 }, { attempts: 1 });
    await until(() => delays >= 2, 'the job was moved back twice');
    await lock.release();
    await expect(job.waitUntilFinished(events, 30_000)).resolves.toBe('7 after 0 failures');
  } finally {
    await events.close();
    await app.close();
  }
}, 60_000);
