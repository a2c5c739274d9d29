import { Injectable } from '@nestjs/common';
import { DistributedLock, LockService, MemoryLockProvider, OnlyLeader, RunOnce } from '../../../lib/index.js';
import { start } from '../apps.js';

interface Order {
  id?: number;
}

async function run(...providers: (new (...args: never[]) => unknown)[]) {
  const warnings: string[] = [];
  const ignore = () => undefined;
  const logger = { log: ignore, error: ignore, warn: (text: string) => warnings.push(text) };
  const app = await start(
    { providers: providers as never },
    { logger, providers: { memory: new MemoryLockProvider() }, default: 'memory' },
  );
  return {
    app,
    locks: app.get(LockService),
    warnings: () => warnings.filter((text) => text.includes('instead of a value')),
  };
}

const remedy = 'Build it with lockKey, such as lockKey`order:${order.id}`, which rejects missing values.';

describe('a key with the text of a missing value', () => {
  it('is reported by each call of LockService that takes one, once for each first segment', async () => {
    const { locks, warnings } = await run();
    const order: Order = {};
    const calls = [
      async () => (await locks.acquire(`acquire:${order.id}`)).release(),
      async () => (await locks.tryAcquire(['order:1', `try:${order.id}:lines`]))?.release(),
      () => locks.via('memory').withLock(`with:${order.id}`, () => undefined),
      () => locks.runOnce(`once:${order.id}`, () => undefined, { minHold: 0 }),
      () => locks.runAsLeader(`lead:${order.id}`, async () => undefined, { signal: AbortSignal.abort() }),
    ];
    for (const call of [...calls, ...calls]) await call();
    const keys = ['acquire:undefined', 'try:undefined:lines', 'with:undefined', 'once:undefined', 'lead:undefined'];
    expect(warnings()).toEqual(
      keys.map(
        (key) =>
          `Lock key "${key}" contains the text "undefined" instead of a value, so all calls without the value share one lock. ${remedy}`,
      ),
    );
  });

  it('of a key function is reported with its method, once', async () => {
    @Injectable()
    class Orders {
      @DistributedLock((order: Order) => `order:${order.id}`)
      async pay(order: Order) {
        return order;
      }
      @DistributedLock('order:#{order.name}')
      async ship(order: { name: string }) {
        return order;
      }
    }
    const { app, warnings } = await run(Orders);
    const orders = app.get(Orders);
    await orders.pay({ id: 1 });
    await orders.ship({ name: 'null' });
    expect(warnings()).toEqual([]);
    for (let call = 0; call < 3; call++) await orders.pay({});
    expect(warnings()).toEqual([
      `Lock key "order:undefined" contains the text "undefined" instead of a value, so all calls without the value share one lock. It comes from the key function of Orders.pay. ${remedy}`,
    ]);
  });

  it('of a decorator is reported at boot', async () => {
    const region: string | undefined = process.env['NO_SUCH_REGION'];
    @Injectable()
    class Jobs {
      @RunOnce(`nightly:${region}`, { minHold: '1m' })
      async nightly() {}
      @DistributedLock(['orders', `order:${region}:#{id}`])
      async order(id: number) {
        return id;
      }
      @OnlyLeader(`leader:${region}`)
      async report() {}
      @DistributedLock('undefined-behavior:#{id}')
      async fine(id: number) {
        return id;
      }
    }
    const { warnings } = await run(Jobs);
    const why =
      'contains the text "undefined" instead of a value, since decorators run when their file is imported: make sure the value is set by then, or write #{…} for a per-call value.';
    expect(warnings()).toEqual([
      `The lock key "nightly:undefined" of Jobs.nightly ${why}`,
      `The lock key "order:undefined:#{id}" of Jobs.order ${why}`,
      `The lock key "leader:undefined" of Jobs.report ${why}`,
    ]);
  });
});
