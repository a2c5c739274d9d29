import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { jest } from '@jest/globals';
import { LockCapacityError, LockUnavailableError } from '../../lib/api/errors.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { deferred, startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { DenseSet } from '../../lib/core/toolkit/dense-set.js';

const NONE = { waits: 0, waited: 0 };
const once = (waited: number) => ({ waits: 1, waited });

/** Starts applications that share a store and a clock. */
function fleet() {
  const clock = new FakeClock();
  const store = new MemoryStore();
  const start = (instance: string) => startManager({ clock, instance, provider: new MemoryLockProvider({ store }) });
  return { clock, start };
}

describe('the contention profile', () => {
  it('has no row for a lock that was free, nor for a caller that does not wait', async () => {
    const { locks } = await startManager();
    const held = await locks.acquire('order:1');
    await expect(locks.acquire('order:1', { wait: 0 })).rejects.toThrow('busy');
    await held.release();
    await locks.withLock('order:1', () => undefined);
    expect(locks.admin.contention()).toEqual([]);
  });

  it('distinguishes a long holder from a queue within one process', async () => {
    const { locks, clock } = await startManager({ instance: 'shop' });
    const held = await locks.acquire('order:1');
    await clock.advance(1_000);
    const second = locks.acquire('order:1');
    const third = locks.acquire('order:1');
    await clock.advance(100);
    await held.release();
    const next = await second;
    await clock.advance(50);
    await next.release();
    await (await third).release();
    expect(locks.admin.contention()).toEqual([
      {
        ...{ template: 'order', provider: 'main', unknown: NONE },
        ...{ queue: once(150), holder: once(100), instances: [{ instance: 'shop', ...once(100) }] },
      },
    ]);
  });

  it('names the instance of another application for callers that were granted, gave up or were refused', async () => {
    const { clock, start } = fleet();
    const [shop, billing] = [await start('shop'), await start('billing')];
    const held = await billing.locks.acquire('a');
    const patient = shop.locks.acquire('a');
    const leaving = new AbortController();
    const aborted = watch(shop.locks.acquire('a', { signal: leaving.signal }));
    const refused = watch(shop.locks.acquire('a', { wait: 30 }));
    await clock.advance(10);
    leaving.abort();
    await clock.advance(20);
    expect([aborted.state, refused.error]).toMatchObject(['rejected', { code: 'LOCK_BUSY' }]);
    await clock.advance(970);
    await held.release();
    await clock.advance(1);
    await (await patient).release();
    const waits = { waits: 3, waited: 1_040 };
    expect(shop.locks.admin.contention()).toEqual([
      {
        ...{ template: 'a', provider: 'main', queue: NONE, unknown: NONE },
        ...{ holder: waits, instances: [{ instance: 'billing', ...waits }] },
      },
    ]);
    expect(billing.locks.admin.contention()).toEqual([]);
  });

  it('blames no instance for a wait that ends under another holder', async () => {
    const { clock, start } = fleet();
    const [shop, billing, third] = [await start('shop'), await start('billing'), await start('third')];
    const held = await billing.locks.acquire('a');
    const next = third.locks.acquire('a');
    await clock.advance(10);
    const refused = watch(shop.locks.acquire('a', { wait: 100 }));
    await clock.advance(50);
    await held.release();
    await next;
    await clock.advance(50);
    expect(refused.error).toMatchObject({ heldBy: { instance: 'third' } });
    expect(shop.locks.admin.contention()).toMatchObject([{ queue: once(100), holder: NONE, instances: [] }]);
  });

  it('counts readers that enter together as waiting for the writer before them', async () => {
    const { locks, clock } = await startManager({ instance: 'shop' });
    const writer = await locks.acquire('a');
    const readers = [1, 2, 3].map(() => locks.acquire('a', { mode: 'shared' }));
    await clock.advance(20);
    await writer.release();
    await Promise.all(readers);
    expect(locks.admin.contention()).toMatchObject([{ queue: NONE, holder: { waits: 3, waited: 60 } }]);
  });

  it('attributes a wait to `unknown` if there are several holders, or the backend does not report the holder', async () => {
    const { locks, clock } = await startManager({ instance: 'shop' });
    const readers = [await locks.acquire('a', { mode: 'shared' }), await locks.acquire('a', { mode: 'shared' })];
    const writer = locks.acquire('a');
    await clock.advance(20);
    for (const reader of readers) await reader.release();
    await writer;
    expect(locks.admin.contention()).toMatchObject([{ queue: NONE, holder: NONE, unknown: once(20), instances: [] }]);

    const provider = ScriptedProvider.obliging();
    const free = deferred();
    provider.onAcquire = async (request, grant) => {
      request.waits();
      await free.promise;
      return grant();
    };
    const unknowing = await startManager({ provider });
    const waiting = unknowing.locks.acquire('b');
    await unknowing.clock.advance(20);
    free.resolve();
    await waiting;
    expect(unknowing.locks.admin.contention()).toMatchObject([{ template: 'b', unknown: once(20), instances: [] }]);
  });

  it('treats two observations of a holder of unknown age as one holder if both name the same instance', async () => {
    const holder = { instance: 'billing' };
    const backend = Object.assign(ScriptedProvider.obliging(), {
      heldBy: () => ({ holders: 1, since: null, seenAt: 0, ...holder }),
    });
    backend.onAcquire = (request) => {
      request.waits();
      return new Promise<never>(() => undefined);
    };
    const { locks, clock } = await startManager({ provider: backend });
    const first = watch(locks.acquire('a', { wait: 20 }));
    await clock.advance(20);
    const second = watch(locks.acquire('b', { wait: 20 }));
    await clock.advance(10);
    holder.instance = 'third';
    await clock.advance(10);
    expect([first.error, second.error]).toMatchObject([{ code: 'LOCK_BUSY' }, { code: 'LOCK_BUSY' }]);
    expect(locks.admin.contention()).toMatchObject([
      { template: 'a', holder: once(20), instances: [{ instance: 'billing' }] },
      { template: 'b', queue: once(20), instances: [] },
    ]);
  });

  it('omits a wait for the server, and a wait that ended in an outage', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    provider.onAcquire = (request, grant) => {
      request.waits(new LockCapacityError('All connections are in use.'));
      return new Promise((resolve) => clock.setTimer(() => resolve(grant()), 20));
    };
    const granted = locks.acquire('pool');
    await clock.advance(20);
    await granted;
    provider.onAcquire = (request) => {
      request.waits();
      provider.onAcquire = () => Promise.reject(new LockUnavailableError('down'));
      return new Promise((_, reject) => clock.setTimer(() => reject(new LockUnavailableError('down')), 20));
    };
    const failed = watch(locks.acquire('down', { wait: 50 }));
    await clock.advance(2_000);
    expect(failed.error).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(locks.admin.contention()).toEqual([]);
  });

  it('measures the wait for each key of a call from when the call requested that key', async () => {
    const { locks, clock } = await startManager();
    const [first, second] = [await locks.acquire('a:1'), await locks.acquire('b:1')];
    const both = locks.acquire(['a:1', 'b:1']);
    await clock.advance(100);
    await first.release();
    await clock.advance(10);
    await second.release();
    await (await both).release();
    expect(locks.admin.contention()).toMatchObject([
      { template: 'a', holder: once(100) },
      { template: 'b', holder: once(10) },
    ]);
  });

  it('has a row for each template and provider, with the longest wait first', async () => {
    const { locks, clock } = await startManager({
      ...{ providers: { main: new MemoryLockProvider(), other: new MemoryLockProvider() }, default: 'main' },
    });
    const template = 'order:#{id}';
    const pay = locks.plan({}, { method: 'Orders.pay', template });
    const contend = async (hold: number, plan = locks.plan({}), key = 'order:1') => {
      const held = await locks.acquirePlanned(plan, key);
      const next = locks.acquirePlanned(plan, key);
      await clock.advance(hold);
      await held.release();
      await (await next).release();
    };
    await contend(10, pay);
    await contend(20);
    await contend(30, locks.plan({ provider: 'other' }));
    await contend(5, pay, 'order:2');
    const rows = locks.admin.contention().map((row) => [row.template, row.provider, row.holder]);
    expect(rows).toEqual([
      ['order', 'other', once(30)],
      ['order', 'main', once(20)],
      [template, 'main', { waits: 2, waited: 15 }],
    ]);
  });

  it('has at most 500 rows, and merges everything after the first 499 into one', async () => {
    const { locks, clock } = await startManager({ instance: 'shop' });
    const contend = async (key: string) => {
      const held = await locks.acquire(key);
      const next = locks.acquire(key);
      await clock.advance(1);
      await held.release();
      await (await next).release();
    };
    for (let tenant = 1; tenant <= 510; tenant += 1) await contend(`tenant-${tenant}:a`);
    await contend('tenant-1:b');
    await contend('tenant-510:b');
    const rows = locks.admin.contention();
    expect(rows).toHaveLength(500);
    expect(rows.find(({ template }) => template === 'tenant-1')?.holder).toEqual({ waits: 2, waited: 2 });
    const rest = { waits: 12, waited: 12 };
    expect(rows[0]).toEqual({
      ...{ template: null, provider: null, queue: NONE, holder: rest, unknown: NONE },
      instances: [{ instance: 'shop', ...rest }],
    });
  });

  it('names at most eight instances for each template', async () => {
    const { clock, start } = fleet();
    const shop = await start('shop');
    const waitFor = async (instance: string) => {
      const { locks } = await start(instance);
      const held = await locks.acquire('a');
      const next = shop.locks.acquire('a');
      await clock.advance(1);
      await held.release();
      await clock.advance(0);
      await (await next).release();
      await locks.stop();
    };
    for (let number = 1; number <= 10; number += 1) await waitFor(`web-${number}`);
    await waitFor('web-3');
    const [row] = shop.locks.admin.contention();
    const named = row?.instances.map(({ instance, waits }) => `${String(instance)}: ${waits}`);
    const others = ['web-1: 1', 'web-2: 1', 'web-4: 1', 'web-5: 1', 'web-6: 1', 'web-7: 1', 'web-8: 1'];
    expect(named?.sort()).toEqual(['null: 2', ...others, 'web-3: 2'].sort());
  });

  it('publishes each wait to subscribers, with the same instance name as the profile', async () => {
    const messages: unknown[] = [];
    const listen = (message: unknown) => messages.push(message);
    subscribe('nestjs-distributed-lock:contention', listen);
    const { locks, clock } = await startManager({ instance: 'shop' });
    const held = await locks.acquire('order:1');
    const next = locks.acquire('order:1');
    await clock.advance(20);
    await held.release();
    await next;
    unsubscribe('nestjs-distributed-lock:contention', listen);
    expect(messages).toEqual([
      {
        ...{ key: 'order:1', provider: 'main', mode: 'exclusive', method: null, template: null },
        ...{ waited: 20, blockedBy: 'holder', instance: 'shop' },
      },
    ]);
  });
});

const FEW = 1_000;
const MANY = 8_000;
const RUNS = 3;
/** Other work on the machine only ever makes a run slower, so the fastest of a few more runs is reliable. */
const MOST_RUNS = 30;

/** Fails unless the fastest of all runs of `dear` takes less than `factor` times as long as the fastest of `cheap`. */
async function expectCheaper(dear: () => Promise<number>, cheap: () => Promise<number>, factor: number): Promise<void> {
  const costs = { dear: Infinity, cheap: Infinity };
  for (let run = 1; run <= MOST_RUNS; run += 1) {
    costs.cheap = Math.min(costs.cheap, await cheap());
    costs.dear = Math.min(costs.dear, await dear());
    if (run >= RUNS && costs.dear < factor * costs.cheap) return;
  }
  expect(costs.dear).toBeLessThan(factor * costs.cheap);
}

// If any part iterated over all other callers, each of the many would cost eight times as much.
describe('the cost of a caller does not grow with the number of callers that arrive in the same tick', () => {
  const managers: LockManager[] = [];
  afterEach(async () => {
    await Promise.all(managers.splice(0).map((manager) => manager.stop()));
  });

  /** Measures the CPU time, in µs, of each of `count` callers that start to wait. */
  async function cost(count: number, keyOf: (index: number) => string): Promise<number> {
    const locks = new LockManager({ providers: { main: new MemoryLockProvider() }, shutdownGrace: 0 });
    managers.push(locks);
    await locks.start();
    const keys = new Set(Array.from({ length: count }, (_, index) => keyOf(index)));
    for (const key of keys) await locks.acquire(key);
    const begun = process.cpuUsage();
    const waiting = Array.from({ length: count }, (_, index) => locks.acquire(keyOf(index), { wait: Infinity }));
    const { user, system } = process.cpuUsage(begun);
    const ended = Promise.allSettled(waiting);
    await locks.stop();
    await ended;
    return (user + system) / count;
  }

  it.each([
    ['for one key', () => 'k'],
    ['for one key each', (index: number) => `order:${index}:invoice`],
  ])(
    '%s',
    async (_, keyOf) => {
      // The first runs are not yet compiled.
      for (let run = 0; run < RUNS; run += 1) await cost(FEW, keyOf);
      await expectCheaper(
        () => cost(MANY, keyOf),
        () => cost(FEW, keyOf),
        4,
      );
    },
    240_000,
  );
});

describe('the cost of a key', () => {
  it('does not depend on its text, so callers who choose keys cannot block the event loop', async () => {
    const KEYS = 4_096;
    const BITS = 16;
    const START = 'x'.repeat(400);
    // Every hash of the form `31 * hash + character` collides for "Aa" and "BB".
    const keyOf = (pair: readonly [string, string], index: number) =>
      START + Array.from({ length: BITS }, (_, bit) => pair[(index >> bit) & 1]).join('');
    const locks = new LockManager({ providers: { main: new MemoryLockProvider() } });
    await locks.start();
    /** Measures the CPU time, in µs, of all keys, held at the same time. */
    const cost = async (pair: readonly [string, string]) => {
      const keys = Array.from({ length: KEYS }, (_, index) => keyOf(pair, index));
      const begun = process.cpuUsage();
      const held = await Promise.all(keys.map((key) => locks.acquire(key)));
      await Promise.all(held.map((lock) => lock.release()));
      const { user, system } = process.cpuUsage(begun);
      return user + system;
    };
    try {
      await expectCheaper(
        () => cost(['Aa', 'BB']),
        () => cost(['Aa', 'BC']),
        10,
      );
    } finally {
      await locks.stop();
    }
  }, 240_000);
});

it('a busy `tryAcquire` does not iterate over the many locks that the process holds', async () => {
  const { locks } = await startManager();
  await locks.acquire('busy');
  for (let each = 0; each < 1_000; each += 1) await locks.acquire(`key ${each}`);
  const overAll = [
    jest.spyOn(DenseSet.prototype, 'values'),
    ...(['values', 'keys', 'entries', 'forEach'] as const).map((goOver) => jest.spyOn(Map.prototype, goOver)),
  ];
  expect(await locks.tryAcquire('busy')).toBeNull();
  const over = overAll.flatMap(({ mock }) => mock.contexts as unknown as readonly { readonly size: number }[]);
  for (const goesOver of overAll) goesOver.mockRestore();
  // Jest's own collections are smaller.
  expect(over.filter(({ size }) => size >= 1_000)).toEqual([]);
});
