import 'reflect-metadata';
import { setTimeout } from 'node:timers/promises';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { DistributedLock, DistributedLockModule, LockBusyError, MemoryLockProvider } from 'nestjs-distributed-lock';
import { RedisLockProvider } from 'nestjs-distributed-lock/redis';

const { REDIS_URL: url } = process.env;
let start: number;

function print(caller: string, text: string): void {
  console.log(`${(performance.now() - start).toFixed(0).padStart(5)} ms  ${caller.padEnd(6)}  ${text}`);
}

@Injectable()
class OrderService {
  @DistributedLock('order:#{id}', { wait: '1500ms' }) // one call at a time per order
  async pay(id: number, caller: string): Promise<void> {
    print(caller, `pays order ${id}`);
    await setTimeout(1000);
    print(caller, 'is done');
  }
}

@Module({
  imports: [
    DistributedLockModule.forRoot({
      namespace: 'quick-start',
      provider: url ? new RedisLockProvider({ url }) : new MemoryLockProvider(),
    }),
  ],
  providers: [OrderService],
})
class AppModule {}

const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error', 'warn'] });
app.enableShutdownHooks();
const orders = app.get(OrderService);
start = performance.now();

await Promise.all(
  ['first', 'second', 'third'].map(async (caller) => {
    try {
      await orders.pay(42, caller);
    } catch (error) {
      if (!(error instanceof LockBusyError)) throw error;
      print(caller, `busy: waited ${error.waited.toFixed(0)} ms`);
    }
  }),
);
await app.close();
