import { Injectable } from '@nestjs/common';
import { DistributedLock, lockKey, LockService, MemoryLockProvider } from '../../../lib/index.js';
import { type AppOptions, start } from '../apps.js';

@Injectable()
class Stock {
  @DistributedLock('stock:#{item}')
  async take(item: string): Promise<string> {
    return item;
  }

  @DistributedLock('stock:#{item}', { mode: 'shared' })
  async count(item: string, inner: () => Promise<unknown>): Promise<void> {
    await inner();
  }

  @DistributedLock('stock:#{lines[*].item}')
  async restock(lines: { item: string }[], inner: () => Promise<unknown>): Promise<number> {
    await inner();
    return lines.length;
  }
}

@Injectable()
class Orders {
  constructor(
    private readonly stock: Stock,
    private readonly locks: LockService,
  ) {}

  @DistributedLock('order:#{order.id}')
  async ship(order: { id: number; item: string }): Promise<void> {
    await this.stock.take(order.item);
  }

  @DistributedLock('order:#{id}')
  async note(id: number): Promise<number> {
    return id;
  }

  @DistributedLock('order:#{id}', { onBusy: 'skip' })
  async tryToNote(id: number): Promise<number | undefined> {
    return id;
  }

  @DistributedLock('order:#{id}')
  async compare(id: number): Promise<void> {
    await this.stock.count(`pen of ${id}`, async () => undefined);
  }
}

async function boot(options: AppOptions = {}) {
  const warnings: string[] = [];
  const ignore = () => undefined;
  const logger = { log: ignore, error: ignore, warn: (message: string) => warnings.push(message) };
  const app = await start({ providers: [Stock, Orders] }, { provider: new MemoryLockProvider(), logger, ...options });
  // Warnings from the boot aren't about the order of locks.
  warnings.length = 0;
  return { stock: app.get(Stock), orders: app.get(Orders), locks: app.get(LockService), warnings };
}

it('warns of methods nested in both orders, naming each with its outer method, whatever their keys are', async () => {
  const { stock, orders, warnings } = await boot();
  await orders.ship({ id: 42, item: 'book' });
  await orders.ship({ id: 43, item: 'pen' });
  expect(warnings).toEqual([]);
  await stock.restock([{ item: 'ink' }, { item: 'pad' }], () => orders.note(7));
  await stock.restock([{ item: 'ink' }], () => orders.note(8));
  expect(warnings).toEqual([
    'Lock "order:7" of Orders.note (provider "default") is acquired under "stock:pad" of Stock.restock, ' +
      'and elsewhere "stock:book" of Stock.take under "order:42" of Orders.ship. ' +
      'Callers that do so at the same time deadlock until a "wait" times out. ' +
      'Acquire these locks in the same order everywhere, or all at once with an array of keys. (Warned once per pair.)',
  ]);
});

it('matches a call of LockService to the template whose text its key begins with', async () => {
  const { orders, locks, warnings } = await boot();
  await orders.ship({ id: 42, item: 'book' });
  await locks.withLock(lockKey`stock:${'pen'}`, () => locks.withLock(lockKey`order:${5}`, () => undefined));
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toContain(
    '"order:5" (provider "default") is acquired under "stock:pen", and elsewhere "stock:book" of Stock.take',
  );
});

it('reports no cycle through a method that skips when busy, because it never waits', async () => {
  const { stock, orders, warnings } = await boot();
  await orders.ship({ id: 42, item: 'book' });
  await stock.restock([{ item: 'ink' }], () => orders.tryToNote(1));
  expect(warnings).toEqual([]);
});

it('reports no cycle between methods that lock as readers, until one of them writes', async () => {
  const { stock, orders, warnings } = await boot();
  await orders.compare(1);
  await stock.count('book', () => orders.note(1));
  expect(warnings).toEqual([]);
  await orders.ship({ id: 42, item: 'book' });
  expect(warnings).toHaveLength(1);
});
