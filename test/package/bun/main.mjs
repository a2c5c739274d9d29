// Runs on Bun, next to the README's files, which `npm run smoke` adds.
import 'reflect-metadata';
import assert from 'node:assert/strict';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { currentLock, DistributedLockModule, MemoryLockProvider } from 'nestjs-distributed-lock';
import { AppModule } from './app.module.js';
import { OrderService } from './order.service.js';

class MemoryModule {}
Module({
  imports: [DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })],
  providers: [OrderService],
})(MemoryModule);

// The work that the service does under its lock.
const inside = { now: 0, most: 0, calls: 0 };
globalThis.fetch = async () => {
  inside.now += 1;
  inside.calls += 1;
  inside.most = Math.max(inside.most, inside.now);
  await new Promise((resolve) => setTimeout(resolve, 5));
  currentLock().assertHeld();
  inside.now -= 1;
};

for (const module of [AppModule, MemoryModule]) {
  const app = await NestFactory.createApplicationContext(module, { logger: ['error'] });
  const orders = app.get(OrderService);
  await Promise.all(Array.from({ length: 20 }, () => orders.pay({ id: 7 })));
  await app.close();
}
assert.deepEqual(inside, { now: 0, most: 1, calls: 40 });
assert.ok(process.versions.bun, 'This test must run on Bun.');
