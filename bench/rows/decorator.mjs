// Design bar: a decorated call on the memory provider costs at most 3 µs more than the plain async call, and a key
// template at most 200 ns.
import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { DistributedLock, DistributedLockModule, LockService } from 'nestjs-distributed-lock';
import { interleave, median, cpuNanoseconds } from '../measure.mjs';

class Orders {
  async plain(order) {
    return order.id;
  }

  async locked(order) {
    return order.id;
  }

  async lockedByFunction(order) {
    return order.id;
  }
}

function decorate(method, key) {
  const descriptor = Object.getOwnPropertyDescriptor(Orders.prototype, method);
  DistributedLock(key)(Orders.prototype, method, descriptor);
  Object.defineProperty(Orders.prototype, method, descriptor);
}
decorate('locked', 'order:#{order.id}');
decorate('lockedByFunction', (order) => `order:${order.id}`);

class App {}
Module({ imports: [DistributedLockModule.forRoot()], providers: [Orders] })(App);
const app = await NestFactory.createApplicationContext(App, { logger: ['error'] });
const orders = app.get(Orders);
const locks = app.get(LockService);
const order = { id: 42 };
const CALLS = 100_000;

const times = await interleave(
  {
    'plain async call': () => cpuNanoseconds(CALLS, () => orders.plain(order)),
    'decorated, key template': () => cpuNanoseconds(CALLS, () => orders.locked(order)),
    'decorated, key function': () => cpuNanoseconds(CALLS, () => orders.lockedByFunction(order)),
    withLock: () => cpuNanoseconds(CALLS, () => locks.withLock('order:42', () => order.id)),
  },
  { rounds: 15 },
);

const plain = median(times['plain async call']);
console.log(
  `\nA call under a lock, memory provider (Node ${process.version}, median of ${times['withLock'].length} rounds)`,
);
for (const [name, rounds] of Object.entries(times)) {
  const time = median(rounds);
  const over = time - plain;
  const verdict = name.startsWith('plain')
    ? ''
    : `+${(over / 1000).toFixed(2)} µs  ${over <= 3000 ? 'within' : 'OVER'} the bar of 3 µs`;
  console.log(`  ${name.padEnd(26)} ${(time / 1000).toFixed(2).padStart(6)} µs  ${verdict}`);
}
const { key, bar } = await templateCost();
console.log(
  `  ${'key template alone'.padEnd(26)} ${String(Math.round(key)).padStart(6)} ns  ${key <= bar ? 'within' : 'OVER'} the bar of ${bar} ns`,
);
await app.close();

// Templates are no public API: what they cost is what the template adds to a call whose key function does nothing.
async function templateCost() {
  const { KeyTemplate } = await import('../../dist/key/key-template.js');
  const template = KeyTemplate.parse('order:#{order.id}', {
    method: 'Orders.locked',
    className: 'Orders',
    methodName: 'locked',
    parameters: ['order'],
  });
  const scope = { self: orders, args: [order] };
  const runs = Array.from({ length: 15 }, () => {
    const startedAt = process.hrtime.bigint();
    for (let call = 0; call < 200_000; call += 1) template.evaluate(scope);
    return Number(process.hrtime.bigint() - startedAt) / 200_000;
  });
  return { key: median(runs), bar: 200 };
}
