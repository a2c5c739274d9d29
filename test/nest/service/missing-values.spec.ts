import { Injectable } from '@nestjs/common';
import { DistributedLock, LockFor, LockService, MemoryLockProvider, OnlyLeader, RunOnce } from '../../../lib/index.js';
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

const remedy = 'Make it with lockKey, such as lockKey`order:${order.id}`, which refuses a missing value.';

describe('a key with the text of a missing value', () => {
  it('is reported with the place that called LockService, once for each place', async () => {
    const { locks, warnings } = await run();
    const order: Order = {};
    async function acquires() {
      await (await locks.acquire(`order:${order.id}`)).release();
    }
    async function tries() {
      await (await locks.tryAcquire(['order:1', `order:${order.id}:lines`]))?.release();
    }
    async function runs() {
      await locks.via('memory').withLock(`order:${order.id}`, () => undefined);
    }
    async function runsOnce() {
      await locks.runOnce(`order:${order.id}`, () => undefined, { minHold: 0 });
    }
    async function leads() {
      await locks.runAsLeader(`order:${order.id}`, async () => undefined, { signal: AbortSignal.abort() });
    }
    const places = [acquires, tries, runs, runsOnce, leads];
    for (const place of [...places, ...places]) await place();

    const lines = warnings().map((text) => /It comes from .*missing-values\.spec\.ts:(\d+):\d+\)?\. (.*)$/.exec(text));
    expect(lines.map((line) => line?.[2])).toEqual(places.map(() => remedy));
    expect(new Set(lines.map((line) => line?.[1])).size).toBe(places.length);
    expect(warnings()[0]).toMatch(
      /^Lock key "order:undefined" contains the text "undefined" instead of a value, so all calls that miss the value exclude one another\. /,
    );
    expect(warnings()[1]).toMatch(/^Lock key "order:undefined:lines" contains/);
  });

  it('of a key function is reported with its method, once', async () => {
    @Injectable()
    class Orders {
      @DistributedLock(LockFor<Orders['pay']>((order) => `order:${order.id}`))
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
      `Lock key "order:undefined" contains the text "undefined" instead of a value, so all calls that miss the value exclude one another. It comes from the key function of Orders.pay. ${remedy}`,
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
      'contains the text "undefined" instead of a value, since decorators run when their file is imported: make sure that the value is set by then, or write #{…} for a value of each call.';
    expect(warnings()).toEqual([
      `The lock key "nightly:undefined" of Jobs.nightly ${why}`,
      `The lock key "order:undefined:#{id}" of Jobs.order ${why}`,
      `The lock key "leader:undefined" of Jobs.report ${why}`,
    ]);
  });
});
