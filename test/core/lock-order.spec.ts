import fc from 'fast-check';
import { jest } from '@jest/globals';
import type { FakeClock } from '../../lib/testing/fake-clock.js';
import type { LockKey } from '../../lib/key/lock-key.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { LockOrder } from '../../lib/core/insight/lock-order.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { exploration } from '../exploration.js';
import { deferred, startManager, watch } from './manager-rig.js';

interface Step {
  readonly key: LockKey;
  readonly options?: LockOptions;
}

const shared = (key: LockKey): Step => ({ key, options: { mode: 'shared' } });
const on = (provider: string, key: LockKey): Step => ({ key, options: { provider } });

/** Nests these locks, the first outermost. */
async function nest(locks: LockManager, ...steps: readonly (LockKey | Step)[]): Promise<void> {
  const [first, ...rest] = steps.map((step): Step =>
    typeof step === 'string' || !('key' in step) ? { key: step } : step,
  );
  if (first) await locks.withLock(first.key, () => nest(locks, ...rest), first.options);
}

describe('the warning about opposite lock orders', () => {
  let locks: LockManager;
  let clock: FakeClock;
  let log: string[];
  beforeEach(async () => {
    ({ locks, clock, log } = await startManager());
  });

  it('names both places when a second order closes the cycle, and is logged only once', async () => {
    await nest(locks, 'order:42', 'stock:7');
    await nest(locks, 'stock:8', 'box:1');
    await nest(locks, 'order:42', 'stock:7', 'box:1');
    expect(log).toEqual([]);
    await nest(locks, 'stock:9', 'order:3');
    await nest(locks, 'stock:9', 'order:4');
    await nest(locks, 'order:42', 'stock:7');
    expect(log).toEqual([
      'Lock "order:3" (provider "main") is acquired under "stock:9", and elsewhere "stock:7" under "order:42". ' +
        'Callers that do so at the same time deadlock until a "wait" times out. ' +
        'Acquire these locks in the same order everywhere, or all at once with an array of keys. (Warned once per pair.)',
    ]);
  });

  it('concerns callers that do wait for each other', async () => {
    const bothHold = deferred();
    let holding = 0;
    const crossing = (outer: string, inner: string) =>
      watch(
        locks.withLock(outer, async () => {
          if ((holding += 1) === 2) bothHold.resolve();
          await bothHold.promise;
          await locks.withLock(inner, () => undefined, { wait: 1_000 });
        }),
      );
    const both = [crossing('order:1', 'stock:1'), crossing('stock:1', 'order:1')];
    await clock.advance(1_000);
    expect(both[0]?.error).toMatchObject({ code: 'LOCK_BUSY', waited: 1_000 });
    expect(log).toHaveLength(1);
  });

  it('is not logged for an order that no call reverses, whatever the alphabetical order', async () => {
    await nest(locks, 'c:1', 'b:1', 'a:1');
    await nest(locks, 'c:2', 'a:2');
    await nest(locks, 'd:1', 'c:1');
    expect(log).toEqual([]);
  });

  it('is logged for a smaller key under a larger one of the same name, but not for a larger key under a smaller one', async () => {
    await nest(locks, 'order:1', 'order:2', 'order:3');
    expect(log).toEqual([]);
    await nest(locks, 'order:5', 'order:4');
    await nest(locks, 'order:7', 'order:6');
    expect(log).toEqual([
      'Lock "order:4" (provider "main") is acquired under "order:5", which sorts after it: two callers that nest them in opposite orders can deadlock. ' +
        'Acquire keys in sorted order, or all at once as an array. (Warned once per pair.)',
    ]);
    // The outer call holds two keys of that name, one of them larger.
    await nest(locks, ['stock:1', 'stock:5'], 'stock:3');
    expect(log).toHaveLength(2);
  });

  it('is not logged if the callers meet only as readers at one of the locks', async () => {
    await nest(locks, 'order:1', shared('price:1'));
    await nest(locks, shared('price:1'), 'order:1');
    expect(log).toEqual([]);
    await nest(locks, shared('x:1'), shared('y:1'));
    await nest(locks, shared('y:1'), shared('x:1'));
    await nest(locks, shared('x:2'), shared('x:1'));
    expect(log).toEqual([]);
    // A writer of the same lock waits for that reader.
    await nest(locks, 'order:1', 'price:1');
    expect(log).toHaveLength(1);
  });

  it('is logged for limited locks, which wait for each other when the limit is reached', async () => {
    const pool = { key: 'pool', options: { limit: 2 } };
    await nest(locks, 'order:1', pool);
    await nest(locks, pool, 'order:1');
    expect(log).toHaveLength(1);
  });

  it('distinguishes providers, and finds a cycle over two of them', async () => {
    const providers = { main: new MemoryLockProvider(), other: new MemoryLockProvider() };
    const { locks, log } = await startManager({ providers, default: 'main' });
    await nest(locks, on('main', 'order:1'), on('main', 'stock:1'));
    await nest(locks, on('other', 'stock:1'), on('other', 'order:1'));
    await nest(locks, on('main', 'order:1'), on('other', 'order:1'));
    expect(log).toEqual([]);
    await nest(locks, on('other', 'order:1'), on('main', 'order:1'));
    expect(log).toHaveLength(1);
    expect(log[0]).toContain(
      '"order:1" (provider "main") is acquired under "order:1" (provider "other"), and elsewhere "order:1" (provider "other") under "order:1".',
    );
  });

  it('is not logged for a call that does not wait, is reentrant, is detached or outlives the lock', async () => {
    const { locks, log } = await startManager({ defaults: { reentrant: true } });
    await nest(locks, 'order:1', 'stock:1');
    await nest(locks, 'stock:1', { key: 'order:1', options: { wait: 0 } });
    await locks.withLock('stock:1', async () => {
      await (await locks.tryAcquire('order:1'))?.release();
      await locks.detached(() => nest(locks, 'order:1'));
    });
    await nest(locks, 'order:1', 'stock:1', 'order:1');
    await nest(locks, 'order:1', 'stock:1', ['order:1', 'stock:1']);
    const ended = deferred();
    let late: Promise<void> | undefined;
    await locks.withLock('stock:1', () => {
      late = ended.promise.then(() => nest(locks, 'order:1'));
    });
    ended.resolve();
    await late;
    // acquire() sets no context.
    const stock = await locks.acquire('stock:1');
    await nest(locks, 'order:1');
    expect(log).toEqual([]);
    // run() makes it the current lock.
    await stock.run(() => nest(locks, 'order:1'));
    expect(log).toHaveLength(1);
    await stock.release();
  });

  it('is logged for a key acquired together with a re-entered one', async () => {
    const { locks, log } = await startManager({ defaults: { reentrant: true } });
    await nest(locks, 'a:1', 'b:1');
    await nest(locks, 'b:1', ['a:1', 'b:1']);
    expect(log).toHaveLength(1);
  });

  it('is not logged for a call that waits for its own holder, which has its own warning', async () => {
    const own = watch(nest(locks, 'a:1', 'b:1', { key: 'a:1', options: { wait: 10 } }));
    await clock.advance(10);
    expect(own.error).toMatchObject({ code: 'LOCK_BUSY' });
    // The first is logged when the wait starts, the second when it ends.
    expect(log).toEqual([
      expect.stringContaining('requested in the async context of its own holder'),
      (own.error as Error).message,
    ]);
  });

  it('is not logged for several keys of one call, but for a call that nests them in the opposite order', async () => {
    await nest(locks, ['stock:1', 'order:1', 'box:1']);
    await nest(locks, ['order:2', 'box:2']);
    await nest(locks, 'box:1', ['order:2', 'stock:2']);
    // The value comes first in these keys.
    await nest(locks, ['1:a', '2:a']);
    await nest(locks, ['1:b', '2:a', '2:b']);
    expect(log).toEqual([]);
    await nest(locks, 'stock:3', 'box:3');
    expect(log).toHaveLength(1);
    expect(log[0]).toContain('"box:3" (provider "main") is acquired under "stock:3", and elsewhere');
  });

  it('is logged at most a hundred times', async () => {
    for (let each = 0; each < 120; each += 1) await nest(locks, `${each}:2`, `${each}:1`);
    expect(log).toHaveLength(100);
  });

  it('is based on the first 5,000 pairs only', async () => {
    for (let each = 0; each < 5_000; each += 1) await nest(locks, 'outer', `name ${each}`);
    await nest(locks, 'outer', 'late');
    await nest(locks, 'late', 'outer');
    expect(log).toEqual([]);
    await nest(locks, 'name 4999', 'outer');
    expect(log).toHaveLength(1);
  });
});

describe('the names of templates', () => {
  let locks: LockManager;
  let log: string[];
  beforeEach(async () => {
    ({ locks, log } = await startManager());
  });

  const nestPlanned = async (locks: LockManager, ...steps: readonly (readonly [template: string, key: LockKey])[]) => {
    const [first, ...rest] = steps;
    if (!first) return;
    const [template, key] = first;
    const plan = locks.plan({}, { method: `Shop.${template.length}`, template });
    const lock = await locks.acquirePlanned(plan, key);
    await lock.run(() => nestPlanned(locks, ...rest));
    await lock.release();
  };

  it('are equal whatever the values are called, and match a call without a template', async () => {
    await nestPlanned(
      locks,
      ['order:#{order.id}', 'order:1'],
      ['stock:#{order.lines[*].item}', ['stock:1', 'stock:2']],
    );
    await nestPlanned(locks, ['order:#{id}', 'order:3'], ['order:#{other.id}', 'order:4']);
    await nest(locks, 'stock:3');
    expect(log).toEqual([]);
    await locks.withLock('stock:3', () => nestPlanned(locks, ['order:#{id}', 'order:5']));
    expect(log).toHaveLength(1);
    expect(log[0]).toContain('"order:5" of Shop.11 (provider "main") is acquired under "stock:3"');
    expect(log[0]).toContain('"stock:1" of Shop.28 under "order:1" of Shop.17');
  });

  it('differ if the text differs, even after a value or a common word', async () => {
    const tenantOrder = ['#{ctx.tenant}:order:#{id}', 'acme:order:1'] as const;
    const tenantStock = ['#{ctx.tenant}:stock:#{id}', 'acme:stock:1'] as const;
    await nestPlanned(locks, tenantStock, tenantOrder);
    await nestPlanned(locks, ['shop:stock:#{id}', 'shop:stock:1'], ['shop:order:#{id}', 'shop:order:1']);
    await nestPlanned(locks, ['#{class}.#{method}:#{id}', 'Shop.24:1'], ['#{class}.#{method}::#{id}', 'Shop.25:1']);
    expect(log).toEqual([]);
    await nestPlanned(locks, tenantOrder, tenantStock);
    expect(log).toHaveLength(1);
  });

  it('may have keys that sort both ways: a descending nesting counts even after an ascending one', async () => {
    const order = (tenant: string) => ['#{ctx.tenant}:order:#{id}', `${tenant}:order:1`] as const;
    const stock = (tenant: string) => ['#{ctx.tenant}:stock:#{id}', `${tenant}:stock:1`] as const;
    await nestPlanned(locks, order('acme'), stock('acme'));
    await nestPlanned(locks, order('shop'), stock('acme'));
    expect(log).toEqual([]);
    await nestPlanned(locks, stock('acme'), order('shop'));
    expect(log).toHaveLength(1);
  });

  it('come from the template that made the key if a method has several', async () => {
    const both = 'order:#{id}, stock:#{item}';
    await nestPlanned(locks, [both, ['order:1', 'stock:1']], ['box:#{id}', 'box:1']);
    await nestPlanned(locks, ['order:#{id}', 'order:2'], ['stock:#{id}', 'stock:2']);
    expect(log).toEqual([]);
    await nestPlanned(locks, ['box:#{id}', 'box:1'], ['stock:#{id}', 'stock:2']);
    expect(log).toHaveLength(1);
    await nestPlanned(locks, ['stock:#{id}', 'stock:3'], [both, 'order:3']);
    expect(log).toHaveLength(2);
  });
});

describe('an opposite order', () => {
  const keyOf = (name: number) => `${'abcdef'[name]}:1`;

  interface Seen {
    readonly outer: number;
    readonly inner: number;
    readonly held: 'shared' | 'exclusive';
    readonly wanted: 'shared' | 'exclusive';
  }

  it('is found exactly at its second nesting, with any mix of readers and writers', async () => {
    const mode = fc.constantFrom('shared' as const, 'exclusive' as const);
    const name = fc.integer({ min: 0, max: 3 });
    const seen = fc
      .record({ outer: name, inner: name, held: mode, wanted: mode })
      .filter(({ outer, inner }) => outer !== inner);
    await fc.assert(
      fc.asyncProperty(fc.array(seen, { maxLength: 20 }), async (all) => {
        const { locks } = await startManager();
        locks.order.refuseOppositeOrders();
        const before: Seen[] = [];
        for (const each of all) {
          const { outer, inner, held, wanted } = each;
          const outcome = watch(
            nest(
              locks,
              { key: keyOf(outer), options: { mode: held } },
              { key: keyOf(inner), options: { mode: wanted } },
            ),
          );
          await outcome.promise.catch(() => undefined);
          const isOpposite = before.some(
            (other) =>
              other.outer === inner &&
              other.inner === outer &&
              (wanted !== 'shared' || other.held !== 'shared') &&
              (other.wanted !== 'shared' || held !== 'shared'),
          );
          expect([each, outcome.state]).toEqual([each, isOpposite ? 'rejected' : 'fulfilled']);
          if (!isOpposite) before.push(each);
        }
      }),
      { numRuns: exploration(200, 10_000) },
    );
  });
});

describe('the cost of the lock order', () => {
  it('is zero for a lock outside any other', async () => {
    const { locks } = await startManager();
    const asked = [jest.spyOn(LockOrder.prototype, 'under'), jest.spyOn(LockOrder.prototype, 'together')];
    await locks.withLock('order:1', () => undefined);
    await (await locks.acquire('order:2')).release();
    for (const ask of asked) {
      expect(ask).not.toHaveBeenCalled();
      ask.mockRestore();
    }
  });

  it('involves no iteration over the known orders if a nested call matches one of them', async () => {
    const { locks } = await startManager();
    for (let each = 0; each < 400; each += 1) await nest(locks, 'outer:1', `name ${each}`);
    await nest(locks, ['name 7', 'name 8']);
    const overAll = (['values', 'keys', 'entries', 'forEach', 'set'] as const).map((goOver) =>
      jest.spyOn(Map.prototype, goOver),
    );
    await nest(locks, 'outer:1', 'name 7');
    await nest(locks, 'outer:1', ['name 7', 'name 8']);
    const over = overAll.flatMap(({ mock }) => mock.contexts as unknown as readonly { readonly size: number }[]);
    for (const goesOver of overAll) goesOver.mockRestore();
    expect(over.filter(({ size }) => size >= 400)).toEqual([]);
  });
});
