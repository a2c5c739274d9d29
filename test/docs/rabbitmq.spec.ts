import { Controller, type INestApplicationContext, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  type ClientProxy,
  ClientProxyFactory,
  Ctx,
  EventPattern,
  MessagePattern,
  Payload,
  type RmqContext,
  Transport,
} from '@nestjs/microservices';
import { connect } from 'amqplib';
import { firstValueFrom } from 'rxjs';
import { type BusyContext, DistributedLock, DistributedLockModule, LockService } from '../../lib/index.js';
import { hasRabbitmq, type RabbitmqServer, startRabbitmq } from '../servers/rabbitmq-server.mjs';
import { describeUnless } from '../unless.js';
import { until } from '../until.js';

interface Order {
  readonly id: number;
}

interface Channel {
  ack(message: object): void;
  nack(message: object, all: boolean, requeue: boolean): void;
}

/** Acknowledges or requeues the message of a call. `@EventPattern` types its arguments as `unknown`. */
function settle(context: unknown, how: 'ack' | 'requeue'): void {
  const rmq = context as RmqContext;
  const channel = rmq.getChannelRef() as Channel;
  if (how === 'ack') channel.ack(rmq.getMessage());
  else channel.nack(rmq.getMessage(), false, true);
}

/** The messages handled so far, such as `paid 1`. */
const handled: string[] = [];

class Consumer {
  @EventPattern('paid')
  @DistributedLock('order:#{order.id}', { wait: 0 })
  async paid(@Payload() order: Order, @Ctx() context: unknown) {
    handled.push(`paid ${order.id}`);
    settle(context, 'ack');
  }

  @MessagePattern('ship')
  @DistributedLock('order:#{order.id}', { wait: 0 })
  async ship(@Payload() order: Order, @Ctx() context: unknown) {
    handled.push(`shipped ${order.id}`);
    settle(context, 'ack');
    return order.id;
  }

  @EventPattern('requeued')
  @DistributedLock('order:#{order.id}', { wait: '50ms', onBusy: requeue })
  async requeued(@Payload() order: Order, @Ctx() context: unknown) {
    handled.push(`requeued ${order.id}`);
    settle(context, 'ack');
  }
}

function requeue({ args: [, context] }: BusyContext): void {
  settle(context, 'requeue');
}

// The statements of the page about other transports that its code blocks don't cover.
describeUnless(hasRabbitmq ? undefined : 'they need RabbitMQ, which npm run test:all installs as root')(
  'RabbitMQ with noAck: false and prefetchCount: 1, as documented',
  () => {
    let server: RabbitmqServer;
    let app: INestApplicationContext;
    let client: ClientProxy;
    let queue: string;
    let queues = 0;

    beforeAll(async () => {
      server = await startRabbitmq();
    }, 90_000);
    afterEach(async () => {
      await client.close();
      await app.close();
      handled.length = 0;
    });
    afterAll(() => server.stop());

    /** Starts a consumer with its own queue. */
    async function consume(): Promise<INestApplicationContext> {
      queue = `orders-${++queues}`;
      const urls = [server.url];
      @Controller()
      class OrdersConsumer extends Consumer {}
      @Module({ imports: [DistributedLockModule.forRoot({ shutdownGrace: 0 })], controllers: [OrdersConsumer] })
      class AppModule {}
      const service = await NestFactory.createMicroservice(AppModule, {
        transport: Transport.RMQ,
        options: { urls, queue, noAck: false, prefetchCount: 1 },
        logger: false,
      });
      app = service;
      await service.listen();
      client = ClientProxyFactory.create({ transport: Transport.RMQ, options: { urls, queue } });
      await client.connect();
      return app;
    }

    /** Returns the number of waiting messages, without delivered but unacknowledged ones. */
    async function waiting(): Promise<number> {
      const connection = await connect(server.url);
      const channel = await connection.createChannel();
      const { messageCount } = await channel.checkQueue(queue);
      await connection.close();
      return messageCount;
    }

    it.each(['paid', 'ship'])('keeps a busy message unacknowledged, so the next one waits (%s)', async (pattern) => {
      const locks = (await consume()).get(LockService);
      const held = await locks.acquire('order:1');
      const refused: unknown[] = [];
      locks.events.on('busy', ({ key }) => refused.push(key));
      const answer =
        pattern === 'ship'
          ? firstValueFrom(client.send('ship', { id: 1 })).catch((error: unknown) => error)
          : firstValueFrom(client.emit('paid', { id: 1 }), { defaultValue: undefined });
      await until(() => refused.length === 1, 'the first order was busy');
      // The sender of a message still receives its error.
      if (pattern === 'ship') expect(await answer).toMatchObject({ code: 'LOCK_BUSY' });
      client.emit('paid', { id: 2 });
      await until(async () => (await waiting()) === 1, 'the second order is queued');
      await held.release();
      // Each is a round trip to the server, which would have delivered the message meanwhile.
      for (let turn = 0; turn < 5; turn++) expect(await waiting()).toBe(1);
      expect([handled, refused]).toEqual([[], ['order:1']]);
    });

    it('redelivers a requeued message before the next one', async () => {
      const locks = (await consume()).get(LockService);
      const held = await locks.acquire('order:1');
      let refusals = 0;
      locks.events.on('busy', () => (refusals += 1));
      client.emit('requeued', { id: 1 });
      client.emit('requeued', { id: 2 });
      await until(() => refusals >= 3, 'the first order was refused three times');
      expect(handled).toEqual([]);
      await held.release();
      await until(() => handled.length === 2, 'both orders were handled');
      expect(handled).toEqual(['requeued 1', 'requeued 2']);
    });
  },
);
