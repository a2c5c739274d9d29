import { jest } from '@jest/globals';
import { LockBusyError, LockDeadlockError } from '../../lib/api/errors.js';
import type { BackendContext, LockBackend, LockProvider, WaitBoard } from '../../lib/api/lock-provider.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import type { LockKey } from '../../lib/key/lock-key.js';
import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { deferred, type Outcome, startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

const WAIT = { wait: 30_000 };

const pass = (clock: FakeClock, delay: number) => new Promise<void>((resolve) => clock.setTimer(resolve, delay));

interface Application {
  readonly locks: LockManager;
  readonly clock: FakeClock;
}

/** Takes the first lock, then waits 100 ms and requests the second one within it. */
function nest(
  { locks, clock }: Application,
  outer: LockKey,
  inner: LockKey,
  options: { readonly outer?: LockOptions; readonly inner?: LockOptions } = {},
): Outcome<string> {
  const task = async () => {
    await pass(clock, 100);
    return await locks.withLock(inner, () => 'done', { ...WAIT, ...options.inner });
  };
  return watch(locks.withLock(outer, task, { ...WAIT, ...options.outer }));
}

/** Starts applications that share a store and a clock. */
async function applications() {
  const clock = new FakeClock();
  const store = new MemoryStore();
  const start = async (instance: string, provider: LockProvider = new MemoryLockProvider({ store })) => ({
    ...(await startManager({ clock, instance, provider })),
    clock,
  });
  return { clock, store, start, shop: await start('shop'), billing: await start('billing') };
}

/** Advances the clock far beyond the time needed to find a deadlock. */
const longEnough = (clock: FakeClock) => clock.advance(10_000);

type Rig = Awaited<ReturnType<typeof applications>>;
let clock: FakeClock;
let store: MemoryStore;
let start: Rig['start'];
let shop: Rig['shop'];
let billing: Rig['billing'];
beforeEach(async () => {
  ({ clock, store, start, shop, billing } = await applications());
});

describe('a deadlock', () => {
  it('within one process refuses the last caller, with the cycle, and the other caller gets its lock', async () => {
    const application = await startManager({ instance: 'shop' });
    const { locks, clock, log, events } = application;
    const plan = (method: string) => locks.plan(WAIT, { method, template: null });
    const first = nest(application, 'a', 'b');
    const second = watch(
      locks.withLock('b', async () => (await pass(clock, 1_200), locks.acquirePlanned(plan('Stock.take'), 'a'))),
    );
    await longEnough(clock);
    expect(first.value).toBe('done');
    const error = second.error as LockDeadlockError;
    expect(error).toBeInstanceOf(LockDeadlockError);
    expect(error.cycle).toEqual([
      { instance: 'shop', method: 'Stock.take', holds: 'b', waitsFor: 'a', mode: 'exclusive' },
      { instance: 'shop', method: null, holds: 'a', waitsFor: 'b', mode: 'exclusive' },
    ]);
    expect(error.waited).toBeLessThan(4_000);
    const message =
      `Lock "a" of Stock.take (provider "main") was refused after ${error.waited} ms, because callers are waiting for each other in a cycle: ` +
      'this call holds "b"; instance "shop" holds "a" and waits for "b". Release what this call holds and retry the call. ' +
      'Acquire these locks in the same order everywhere, or all at once with an array of keys.';
    expect(error.message).toBe(message);
    expect(log.filter((line) => line.startsWith(message))).toHaveLength(1);
    const heldBy = { instance: 'shop', method: null, since: expect.any(Date) as unknown, holders: 1 };
    expect(events.filter(({ name }) => name === 'busy').map(({ event }) => event)).toEqual([
      expect.objectContaining({ key: 'a', waited: error.waited, heldBy }),
    ]);
    const waits = locks.admin.contention().map(({ template, holder }) => [template, holder.waits]);
    expect(waits.sort()).toEqual([
      ['a', 1],
      ['b', 1],
    ]);
  });

  it('of two applications is logged only once per place, and its cycle is left out of the serialized error', async () => {
    for (let round = 0; round < 2; round += 1) {
      const first = nest(shop, 'a', 'b');
      await clock.advance(10);
      const second = nest(billing, 'b', 'a');
      await longEnough(clock);
      expect(first.value).toBe('done');
      const error = second.error as LockDeadlockError;
      expect(error.cycle?.map(({ instance }) => instance)).toEqual(['billing', 'shop']);
      expect(Object.keys(error)).not.toContain('cycle');
      expect(error.toJSON()).not.toHaveProperty('cycle');
    }
    expect(billing.log.filter((line) => line.includes('in a cycle: this call'))).toHaveLength(1);
    expect(shop.log.filter((line) => line.includes('in a cycle: this call'))).toEqual([]);
  });

  it('of three applications refuses exactly one caller within 5 s', async () => {
    const third = await start('third');
    const all = [nest(shop, 'a', 'b'), nest(billing, 'b', 'c'), nest(third, 'c', 'a')];
    await clock.advance(5_000);
    expect(all.map(({ state }) => state).sort()).toEqual(['fulfilled', 'fulfilled', 'rejected']);
  });

  it('includes the keys that a call with several keys has acquired so far', async () => {
    const first = nest(shop, 'b', 'a');
    await clock.advance(10);
    const second = watch(billing.locks.acquire(['a', 'b', 'c'], WAIT));
    await longEnough(clock);
    expect(first.value ?? second.value).toBeDefined();
    expect([first.error, second.error].filter((error) => error instanceof LockDeadlockError)).toHaveLength(1);
  });

  it('arises between a writer and one of two readers', async () => {
    const free = await shop.locks.acquire('r', { mode: 'shared' });
    const reader = nest(shop, 'r', 'x', { outer: { mode: 'shared' } });
    await clock.advance(10);
    const writer = nest(billing, 'x', 'r');
    await longEnough(clock);
    expect(writer.error).toBeInstanceOf(LockDeadlockError);
    expect(reader.value).toBe('done');
    await free.release();
  });

  it('is found with several waits under one lock, one of them for a limit', async () => {
    const full = await billing.locks.acquire('pool', { limit: 1 });
    const first = nest(billing, 'b', 'a');
    await clock.advance(10);
    const second = watch(
      shop.locks.withLock('a', async () => {
        const inPool = watch(shop.locks.acquire('pool', { ...WAIT, limit: 1 }));
        await pass(clock, 100);
        await shop.locks.withLock('b', () => inPool, WAIT);
      }),
    );
    await longEnough(clock);
    expect([first.value, second.error]).toEqual(['done', expect.any(LockDeadlockError)]);
    await full.release();
  });

  it('makes tryAcquire() return null', async () => {
    const first = nest(shop, 'a', 'b');
    const tryLater = async () => (await pass(clock, 200), billing.locks.tryAcquire('a', WAIT));
    const second = watch(billing.locks.withLock('b', tryLater));
    await longEnough(clock);
    expect([first.value, second.value]).toEqual(['done', null]);
  });

  it('is found through a nested call that is not awaited', async () => {
    const nested = deferred<Outcome<unknown>>();
    const end = deferred();
    const first = watch(
      shop.locks.withLock('a', async () => {
        await pass(clock, 20);
        nested.resolve(watch(shop.locks.acquire('b', WAIT)));
        await end.promise;
      }),
    );
    const second = nest(billing, 'b', 'a');
    await longEnough(clock);
    expect([second.error, (await nested.promise).state]).toEqual([expect.any(LockDeadlockError), 'fulfilled']);
    end.resolve();
    await clock.advance(0);
    expect(first.state).toBe('fulfilled');
  });

  it('leaves behind neither timers nor texts', async () => {
    const all = [nest(shop, 'a', 'b'), nest(billing, 'b', 'a')];
    await clock.advance(1_500);
    expect(store.texts.size).toBe(2);
    await longEnough(clock);
    expect(all.map(({ state }) => state)).not.toContain('pending');
    expect([store.texts.size, clock.pendingTimers]).toEqual([0, 0]);
  });

  it('leaves no texts of an application that stops', async () => {
    const held = await billing.locks.acquire('b');
    const waits = nest(shop, 'a', 'b');
    await clock.advance(1_500);
    expect(store.texts.size).toBe(1);
    const stopped = shop.locks.stop();
    await clock.advance(60_000);
    await stopped;
    expect(waits.state).toBe('rejected');
    expect(store.texts.size).toBe(0);
    await held.release();
  });
});

describe('no deadlock is reported', () => {
  it("if a caller's wait is shorter than 3 s", async () => {
    const short = { inner: { wait: 2_999 } };
    const all = [nest(shop, 'a', 'b', short), nest(billing, 'b', 'a', short)];
    await clock.advance(3_098);
    expect(all.map(({ state }) => state)).toEqual(['pending', 'pending']);
    await clock.advance(1);
    // The first caller to leave releases its lock, which the other then gets.
    expect([all[0]?.error, all[1]?.value]).toEqual([expect.any(LockBusyError), 'done']);
  });

  it('if a caller waits for a cycle without being part of it', async () => {
    const third = await start('third');
    const cycle = [nest(shop, 'a', 'b'), nest(billing, 'b', 'a')];
    await clock.advance(10);
    const behind = nest(third, 'z', 'a');
    await longEnough(clock);
    expect(behind.value).toBe('done');
    expect(cycle.map(({ state }) => state).sort()).toEqual(['fulfilled', 'rejected']);
  });

  it('if a limit is involved', async () => {
    const limit = { outer: { limit: 1 } };
    const all = [nest(shop, 'pool', 'b', limit), nest(billing, 'b', 'pool', { inner: { limit: 1 } })];
    await longEnough(clock);
    expect(all.map(({ state }) => state)).toEqual(['pending', 'pending']);
    // No wait is published for a limit.
    expect(store.texts.size).toBe(0);
    await clock.advance(60_000);
    expect(all.find(({ error }) => error !== undefined)?.error).toBeInstanceOf(LockBusyError);
  });

  it('if a reader is blocked by a queued writer rather than by a holder', async () => {
    const third = await start('third');
    const reader = nest(shop, 'r', 'x', { outer: { mode: 'shared' } });
    await clock.advance(10);
    const writer = watch(third.locks.acquire('r', { wait: 15_000 }));
    await clock.advance(10);
    const second = nest(billing, 'x', 'r', { inner: { mode: 'shared' } });
    await longEnough(clock);
    expect([reader.state, writer.state, second.state]).toEqual(['pending', 'pending', 'pending']);
    await clock.advance(10_000);
    expect(writer.error).toBeInstanceOf(LockBusyError);
    expect([reader.value, second.value]).toEqual(['done', 'done']);
  });

  it('if the work is detached', async () => {
    const detached = deferred<Outcome<string>>();
    const end = deferred();
    const first = watch(
      shop.locks.withLock('a', async () => {
        await pass(clock, 20);
        detached.resolve(watch(shop.locks.detached(() => shop.locks.withLock('b', () => 'late', WAIT))));
        await end.promise;
      }),
    );
    const second = nest(billing, 'b', 'a');
    await longEnough(clock);
    expect([first.state, second.state]).toEqual(['pending', 'pending']);
    end.resolve();
    await clock.advance(0);
    expect([second.value, (await detached.promise).value]).toEqual(['done', 'late']);
  });

  it("if the caller's lock has ended and a local handoff gave its grant to another holder", async () => {
    const b = await billing.locks.acquire('b');
    let nested: Outcome<unknown> | undefined;
    const first = await shop.locks.acquire('a');
    const next = watch(shop.locks.acquire('a', WAIT));
    first.run(() => (nested = watch(shop.locks.acquire('b', WAIT))));
    await first.release();
    await clock.advance(0);
    expect(next.value?.isHeld()).toBe(true);
    const other = b.run(() => watch(billing.locks.acquire('a', WAIT)));
    await longEnough(clock);
    expect([nested?.state, other.state]).toEqual(['pending', 'pending']);
    await next.value?.release();
    await clock.advance(0);
    expect(other.state).toBe('fulfilled');
  });

  it("if the caller's entry has ended while its owner's first entry is still open", async () => {
    const b = await billing.locks.acquire('b');
    const first = await shop.locks.acquire('a');
    const again = await shop.locks.acquire('a', { within: first });
    const nested = again.run(() => watch(shop.locks.acquire('b', WAIT)));
    expect(await again.release()).toBe('nested');
    const other = b.run(() => watch(billing.locks.acquire('a', WAIT)));
    await longEnough(clock);
    expect([nested.state, other.state]).toEqual(['pending', 'pending']);
    await first.release();
    await clock.advance(0);
    expect(other.state).toBe('fulfilled');
  });

  it('if a call waits for its own holder', async () => {
    const { locks, clock } = await startManager();
    const own = watch(locks.withLock('outer', () => locks.withLock('a', () => locks.acquire('a', { wait: 9_000 }))));
    await longEnough(clock);
    expect(own.error).toBeInstanceOf(LockBusyError);
  });

  it('if the locks are in different namespaces', async () => {
    const store = new MemoryStore();
    const clock = new FakeClock();
    const start = async (namespace: string) => ({
      ...(await startManager({ clock, namespace, provider: new MemoryLockProvider({ store }) })),
      clock,
    });
    const [one, two] = [await start('one'), await start('two')];
    const held = [await one.locks.acquire('b'), await two.locks.acquire('a')];
    const all = [nest(one, 'a', 'b'), nest(two, 'b', 'a')];
    await longEnough(clock);
    expect(all.map(({ state }) => state)).toEqual(['pending', 'pending']);
    for (const lock of held) await lock.release();
  });

  it('if the provider is a composite', async () => {
    const clock = new FakeClock();
    const { locks } = await startManager({
      clock,
      providers: {
        main: new CombinedLockProvider({ providers: ['one', 'two'] }),
        one: new MemoryLockProvider(),
        two: new MemoryLockProvider(),
      },
      default: 'main',
    });
    const all = [nest({ locks, clock }, 'a', 'b'), nest({ locks, clock }, 'b', 'a')];
    await longEnough(clock);
    expect(all.map(({ state }) => state)).toEqual(['pending', 'pending']);
    await clock.advance(60_000);
    expect(all.find(({ error }) => error !== undefined)?.error).toBeInstanceOf(LockBusyError);
  });
});

describe('a process that publishes a wait', () => {
  /** `billing` waits for a lock of `shop`. The test publishes the wait of `shop`. */
  async function start() {
    const rig = await applications();
    const { clock, store, shop, billing } = rig;
    const held = await shop.locks.acquire('a');
    const second = nest(billing, 'b', 'a');
    await clock.advance(1_200);
    const name = `lock:${held.holder.slice(0, 12)}:main`;
    const publish = (beat: number, id = '0') => {
      const text = JSON.stringify([1, beat, 0, 'shop', ['b'], [held.holder.slice(-20)], `${id},0,0,0,0,-1`]);
      store.texts.set(name, text, 3_000);
    };
    /** Waits for up to `most` beats of `billing`. */
    const beats = async (beat?: (number: number) => void, most = 20) => {
      for (let number = 0; number < most && second.state === 'pending'; number += 1) {
        beat?.(number);
        await clock.advance(500);
      }
      return second.state;
    };
    return { ...rig, name, held, second, publish, beats };
  }

  it('is in a deadlock while it is alive', async () => {
    const { publish, beats } = await start();
    expect(await beats(publish)).toBe('rejected');
  });

  it('is not in a deadlock if it is frozen, so that its text stays unchanged', async () => {
    const { publish, beats } = await start();
    expect(await beats(() => publish(7))).toBe('pending');
  });

  it('is not in a deadlock if it published only once more, which may have been in flight when the cycle was seen', async () => {
    const { publish, beats } = await start();
    expect(await beats((number) => publish(number === 0 ? 7 : 8))).toBe('pending');
    expect(await beats((number) => publish(Math.min(8 + number, 9)))).toBe('pending');
  });

  it('is not in a deadlock if it crashed, so that its text expires', async () => {
    const { clock, publish, beats } = await start();
    publish(7);
    expect(await beats()).toBe('pending');
    await clock.advance(3_000);
    expect(await beats()).toBe('pending');
  });

  it('is not in a deadlock if it waits repeatedly for a short time', async () => {
    const { publish, beats } = await start();
    expect(await beats((number) => publish(number, String(Math.floor(number / 3))))).toBe('pending');
  });

  it('is not in a deadlock if its wait ended and the removal of its text is delayed', async () => {
    const { store, name, publish, beats } = await start();
    expect(await beats((number) => publish(Math.min(number, 2)), 6)).toBe('pending');
    store.texts.delete(name);
    expect(await beats()).toBe('pending');
  });

  it('is not in a deadlock if its text has an unknown format', async () => {
    const { store, name, beats } = await start();
    const text = '[1,["x"]]';
    expect(await beats(() => store.texts.set(name, text, 3_000))).toBe('pending');
  });
});

describe('a failing wait board', () => {
  /** A provider whose wait boards fail while `isDown`. */
  class Failing implements LockProvider {
    isDown = false;
    readonly written: string[] = [];

    constructor(private readonly store: MemoryStore) {}

    createBackend(context: BackendContext): LockBackend {
      const backend = new MemoryLockProvider({ store: this.store }).createBackend(context);
      const waits = backend.waits!;
      const answer = <T>(value: Promise<T>) => (this.isDown ? Promise.reject(new Error('down')) : value);
      return Object.assign(backend, {
        waits: {
          serverTime: () => answer(waits.serverTime()),
          publish: (text: string | null, keepFor: number) => {
            if (text !== null) this.written.push(text);
            return answer(waits.publish(text, keepFor));
          },
          read: (instance: string) => answer(waits.read(instance)),
          holders: (key: string, most: number) => answer(waits.holders(key, most)),
        },
      });
    }
  }

  it('costs no caller its wait, logs nothing, and makes the proof start over under new ids', async () => {
    const provider = new Failing(store);
    const { locks, log } = await start('failing', provider);
    const first = nest(shop, 'a', 'b');
    await clock.advance(10);
    const second = nest({ locks, clock }, 'b', 'a');
    await clock.advance(1_700);
    provider.isDown = true;
    await clock.advance(8_000);
    expect([first.state, second.state]).toEqual(['pending', 'pending']);
    expect(log).toEqual([expect.stringContaining('elsewhere')].slice(0, log.length));
    provider.isDown = false;
    await longEnough(clock);
    expect([first.value, second.error]).toEqual(['done', expect.any(LockDeadlockError)]);
    const numbers = provider.written.map((text) => (JSON.parse(text) as string[])[6]!.split(',', 1)[0]);
    expect(new Set(numbers).size).toBeGreaterThan(1);
  });
});

describe('a wait that ends', () => {
  it.each([3_100, 3_200, 3_300, 3_400])(
    'after %d ms, before another wait closes the cycle, leads to no refusal',
    async (wait) => {
      for (let offset = 600; offset <= 1_300; offset += 50) {
        const { clock, shop, billing } = await applications();
        const goesOn = async () => {
          await pass(clock, 100);
          await shop.locks.withLock('b', () => 'done', { wait }).catch(() => undefined);
          await pass(clock, 450);
        };
        const first = watch(shop.locks.withLock('a', goesOn, WAIT));
        const closes = async () => (await pass(clock, offset), billing.locks.withLock('a', () => 'done', WAIT));
        const second = watch(billing.locks.withLock('b', closes));
        await clock.advance(wait + 101);
        // The second caller may have closed the cycle early enough.
        const wasRefused = second.state === 'rejected';
        await longEnough(clock);
        expect([offset, first.state, second.state]).toEqual([
          offset,
          'fulfilled',
          wasRefused ? 'rejected' : 'fulfilled',
        ]);
      }
    },
  );
});

describe('an owner that waits for many keys', () => {
  it('is found in a cycle through the last of 400 keys, and only the callers of that key are refused', async () => {
    const long = { inner: { wait: 300_000 } };
    const keys = Array.from({ length: 400 }, (_, index) => `key:${index}`);
    const held = await Promise.all(keys.slice(0, -1).map((key) => billing.locks.acquire(key, { lease: '1h' })));
    const waits: Outcome<string>[] = [];
    const waitForAll = async () => {
      await pass(clock, 500);
      // Waits twice for each key.
      const each = [...keys, ...keys].map((key) => watch(shop.locks.withLock(key, () => 'done', { wait: 300_000 })));
      waits.push(...each);
      await pass(clock, 60_000);
    };
    void shop.locks.withLock('outer', waitForAll, { lease: '1h' });
    const closes = nest(billing, 'key:399', 'outer', long);
    await clock.advance(12_000);
    const refused = waits.flatMap(({ error }, index) =>
      error === undefined ? [] : `${keys[index % 400]} ${(error as Error).name}`,
    );
    expect(refused).toEqual(['key:399 LockDeadlockError', 'key:399 LockDeadlockError']);
    expect(closes.state).toBe('pending');
    await Promise.all(held.map((lock) => lock.release()));
    await clock.advance(60_000);
  });
});

describe('two cycles that one refusal breaks', () => {
  it('cost only one caller, even if one check found both', async () => {
    const other = await shop.locks.acquire('other', { lease: '1h' });
    // The first wait of its process, so that the later ones are published together.
    const early = nest(billing, 'early', 'other', { inner: { wait: 300_000 } });
    const inBoth = async () => {
      await pass(clock, 150);
      await Promise.all(['a', 'c'].map((key) => shop.locks.withLock(key, () => 'done', WAIT)));
    };
    const both = watch(shop.locks.withLock('b', inBoth));
    const waitsLater = (outer: string, delay: number, inner: string) =>
      watch(
        billing.locks.withLock(
          outer,
          async () => (await pass(clock, delay), billing.locks.withLock(inner, () => 1, WAIT)),
        ),
      );
    const [one, two] = [waitsLater('a', 200, 'b'), waitsLater('c', 250, 'a')];
    await clock.advance(20_000);
    expect([both.state, one.state, two.state, early.state]).toEqual(['fulfilled', 'rejected', 'fulfilled', 'pending']);
    await other.release();
  });
});

describe('the wait board', () => {
  /** A provider with parts of its wait board replaced. */
  const onBoard = (store: MemoryStore, change: (waits: WaitBoard) => Partial<WaitBoard>): LockProvider => ({
    createBackend(context: BackendContext): LockBackend {
      const backend = new MemoryLockProvider({ store }).createBackend(context);
      const waits = backend.waits!;
      const own: WaitBoard = {
        serverTime: () => waits.serverTime(),
        holders: (key: string, most: number) => waits.holders(key, most),
        publish: (text: string | null, keepFor: number) => waits.publish(text, keepFor),
        read: (id: string) => waits.read(id),
      };
      return Object.assign(backend, { waits: { ...own, ...change(own) } });
    },
  });

  it('finds a cycle if the server counts fractions of a ms', async () => {
    const precise = onBoard(store, ({ serverTime }) => ({ serverTime: async () => (await serverTime()) + 0.25 }));
    const shop = { ...(await start('shop', precise)), clock };
    const both = [nest(shop, 'a', 'b'), nest(shop, 'b', 'a')];
    await longEnough(clock);
    expect(both.map(({ state }) => state).sort()).toEqual(['fulfilled', 'rejected']);
  });

  it.each([100, 200, 700])('finds a cycle of three with %d ms of latency', async (delay) => {
    const far = onBoard(store, ({ holders }) => ({
      holders: async (key, most) => (await pass(clock, delay), holders(key, most)),
    }));
    const [x, y, z] = await Promise.all(['x', 'y', 'z'].map(async (name) => ({ ...(await start(name, far)), clock })));
    const long = { inner: { wait: 300_000 } };
    const all = [nest(x!, 'a', 'b', long), nest(y!, 'b', 'c', long), nest(z!, 'c', 'a', long)];
    await clock.advance(30_000);
    expect(all.map(({ state }) => state).sort()).toEqual(['fulfilled', 'fulfilled', 'rejected']);
  });

  it.each(['serverTime', 'publish', 'holders', 'read'] as const)(
    'finds a cycle although %s() of a third-party backend throws at first, instead of rejecting',
    async (method) => {
      const throwing = onBoard(store, (own) => {
        const call = jest.spyOn(own, method);
        for (let times = 0; times < 3; times += 1) {
          call.mockImplementationOnce(() => {
            throw new Error('not connected');
          });
        }
        return own;
      });
      const victim = { ...(await start('victim', throwing)), clock };
      const first = nest(billing, 'a', 'b');
      await clock.advance(10);
      const second = nest(victim, 'b', 'a');
      await longEnough(clock);
      expect([first.value, second.error]).toEqual(['done', expect.any(LockDeadlockError)]);
    },
  );

  it('does not refuse a victim that has just lost the lock that closed the cycle', async () => {
    // Counts up the check during which the victim loses its lock, until it is refused earlier.
    for (let losesIn = 1, isLost = true; isLost; losesIn += 1) {
      const { clock, store, shop, start } = await applications();
      let looks = 0;
      isLost = false;
      const losing = onBoard(store, ({ holders }) => ({
        holders: async (key, most) => {
          const found = await holders(key, most);
          if (key === 'b' && (looks += 1) === losesIn) isLost = await victim.locks.admin.forceRelease('b');
          return found;
        },
      }));
      const victim = { ...(await start('victim', losing)), clock };
      const keepsBoth = async () => {
        await pass(clock, 100);
        await shop.locks.withLock('b', () => pass(clock, 1_000), WAIT);
      };
      void shop.locks.withLock('a', keepsBoth);
      await clock.advance(10);
      const refusals: unknown[] = [];
      const closesCycle = async () => {
        await pass(clock, 100);
        await victim.locks.withLock('a', () => 1, WAIT).catch((error: unknown) => refusals.push(error));
      };
      void victim.locks.withLock('b', closesCycle).catch(() => undefined);
      await longEnough(clock);
      expect({ losesIn, isLost, isRefused: refusals.length > 0 }).toEqual({ losesIn, isLost, isRefused: !isLost });
    }
  });

  it('finds a cycle through one of many waits under the same grant', async () => {
    const others = await shop.locks.acquire('others', { lease: '10h' });
    const first = nest(shop, 'b', 'a');
    await clock.advance(10);
    const many = async () => {
      await pass(clock, 100);
      const waiting = Array.from({ length: 40 }, () => billing.locks.withLock('others', () => 1, WAIT).catch(() => 0));
      await pass(clock, 100);
      await Promise.all([...waiting, billing.locks.withLock('b', () => 1, WAIT)]);
    };
    const second = watch(billing.locks.withLock('a', many));
    await longEnough(clock);
    expect([first.state, second.state].sort()).toEqual(['fulfilled', 'rejected']);
    await others.release();
  });
});

it('a wait that a listener ends immediately is never published', async () => {
  const published: (string | null)[] = [];
  const waits: WaitBoard = {
    serverTime: () => Promise.resolve(1_000),
    publish: (text) => Promise.resolve(void published.push(text)),
    read: () => Promise.resolve(null),
    holders: () => Promise.resolve([]),
  };
  const provider = Object.assign(ScriptedProvider.obliging(), { waits });
  const { locks, clock } = await startManager({ provider });
  await locks.withLock('a', async () => {
    provider.onAcquire = undefined;
    const controller = new AbortController();
    locks.events.once('waiting', () => controller.abort(new Error('not wanted')));
    const waiting = watch(locks.acquire('b', { ...WAIT, signal: controller.signal }));
    await clock.advance(0);
    provider.queue(provider.asks[0]?.input.id ?? '');
    await longEnough(clock);
    expect((waiting.error as Error).message).toBe('not wanted');
  });
  expect(published).toEqual([]);
  expect(clock.pendingTimers).toBe(0);
});
