// The bars: a decorated call on the memory provider costs at most 10 µs more than the plain async call, and a key
// template costs at most 200 ns.
import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { DistributedLock, DistributedLockModule, LockService } from 'nestjs-distributed-lock';
import { cpuNanoseconds, interleave } from '../measure.mjs';
import { about, report, versionOf } from '../results.mjs';

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

about({
  versions: { '@nestjs/common': versionOf('@nestjs/common') },
  settings: `Memory provider; CPU time of one of ${CALLS.toLocaleString('en')} sequential calls`,
});
const microseconds = (rounds) => rounds.map((nanoseconds) => nanoseconds / 1_000);
report({
  what: 'A call under a lock',
  unit: 'µs a call',
  better: 'less',
  ours: 'decorated, key template',
  rounds: Object.fromEntries(Object.entries(times).map(([name, rounds]) => [name, microseconds(rounds)])),
});
const over = (name) => microseconds(times[name].map((time, round) => time - times['plain async call'][round]));
report({
  what: 'What the lock adds to the plain call',
  unit: 'µs a call',
  better: 'less',
  ours: 'decorated, key template',
  bar: { atMost: 10 },
  rounds: Object.fromEntries(
    Object.keys(times)
      .slice(1)
      .map((name) => [name, over(name)]),
  ),
});
report({
  what: "A key template alone, 'order:#{order.id}'",
  unit: 'ns',
  better: 'less',
  ours: 'key template',
  bar: { atMost: 200 },
  rounds: await interleave({ 'key template': await templateCalls() }, { rounds: 15 }),
});
await app.close();

// Templates aren't part of the public API.
async function templateCalls() {
  const { KeyTemplate } = await import('../../dist/key/key-template.js');
  const template = KeyTemplate.parse('order:#{order.id}', {
    method: 'Orders.locked',
    className: 'Orders',
    methodName: 'locked',
    parameters: ['order'],
  });
  const scope = { self: orders, args: [order] };
  return () => {
    const startedAt = process.hrtime.bigint();
    for (let call = 0; call < 200_000; call += 1) template.evaluate(scope);
    return Number(process.hrtime.bigint() - startedAt) / 200_000;
  };
}
