import cluster from 'node:cluster';
import type { LockMode } from '../../lib/api/lock-mode.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import type { StoredHold } from '../../lib/providers/memory/stored-hold.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { startManager, watch } from '../core/manager-rig.js';

function setUp() {
  const clock = new FakeClock();
  const store = new MemoryStore();
  store.use(clock);
  const lost: string[] = [];
  const served: string[] = [];
  const request = (id: string, mode: LockMode = 'exclusive', lease = 1_000, minHold = 0) => ({
    id,
    mode,
    lease,
    minHold,
    since: clock.now(),
    lost: () => {
      lost.push(id);
    },
  });
  const take = (holder: string, mode?: LockMode, lease?: number, minHold?: number): StoredHold | undefined =>
    store.tryTake('k', request(holder, mode, lease, minHold));
  const wait = (holder: string, mode?: LockMode) =>
    store.wait('k', request(holder, mode), (hold) => served.push(hold ? holder : `not ${holder}`));
  return { clock, store, lost, served, request, take, wait };
}

describe('the store of locks', () => {
  it('gives a key to one, or to readers', () => {
    const { take, store } = setUp();
    expect(take('writer')).toBeDefined();
    expect(take('other')).toBeUndefined();
    store.release('k', 'writer', 0);
    expect([take('r1', 'shared'), take('r2', 'shared')].map((hold) => hold?.token)).toEqual([
      expect.any(BigInt),
      expect.any(BigInt),
    ]);
    expect(take('writer')).toBeUndefined();
  });

  it('finds the own hold of a holder that asks again, as old as it is', () => {
    const { take, clock } = setUp();
    const hold = take('one');
    clock.block(400);
    expect(take('one')).toBe(hold);
    expect(hold?.expiresAt).toBe(1_000);
  });

  it('still knows its holders after thousands of grants, when it has swept what nobody asks for', async () => {
    const { store, request, clock } = setUp();
    for (let each = 0; each < 1_500; each += 1) {
      expect(store.tryTake(`k${each}`, request('one'))).toBeDefined();
      expect(store.tryTake(`k${each}`, request('two'))).toBeUndefined();
    }
    expect(store.size).toBe(1_500);
    clock.block(1_000);
    for (let each = 0; each < 1_600; each += 1) {
      expect(store.tryTake('busy', request(`h${each}`))).toBeDefined();
      expect(store.tryTake('busy', request('other'))).toBeUndefined();
      store.release('busy', `h${each}`, 0);
    }
    expect(store.size).toBe(0);
    await clock.advance(0);
  });

  it('serves its queue when a lease ends, though nobody asks', async () => {
    const { take, wait, served, clock } = setUp();
    take('one');
    wait('two');
    await clock.advance(999);
    expect(served).toEqual([]);
    await clock.advance(1);
    expect(served).toEqual(['two']);
    await clock.advance(1_000);
    expect(clock.pendingTimers).toBe(0);
  });

  it('serves its queue when a renewal has moved the end', async () => {
    const { take, wait, served, store, clock } = setUp();
    take('one');
    wait('two');
    await clock.advance(500);
    expect(store.renew('k', 'one', 2_000)).toBe(true);
    expect(store.report('k')?.endsAt).toBe(2_500);
    await clock.advance(1_999);
    expect(served).toEqual([]);
    await clock.advance(1);
    expect(served).toEqual(['two']);
  });

  it('does not renew what is over, parked or never was', () => {
    const { take, store, clock } = setUp();
    expect(store.renew('k', 'one', 1_000)).toBe(false);
    take('one');
    clock.block(1_000);
    expect(store.renew('k', 'one', 1_000)).toBe(false);
    expect(store.size).toBe(0);
    take('two');
    store.release('k', 'two', 500);
    expect(store.renew('k', 'two', 1_000)).toBe(false);
  });

  it('lets readers behind a writer in when the writer leaves', () => {
    const { take, wait, served } = setUp();
    take('reader', 'shared');
    const writer = wait('writer');
    wait('r2', 'shared');
    wait('r3', 'shared');
    expect(take('late', 'shared')).toBeUndefined();
    writer();
    writer();
    expect(served).toEqual(['r2', 'r3']);
  });

  it('keeps each reader for its own lease', async () => {
    const { take, wait, served, clock } = setUp();
    take('short', 'shared', 500);
    take('long', 'shared', 1_500);
    wait('writer');
    await clock.advance(1_499);
    expect(served).toEqual([]);
    await clock.advance(1);
    expect(served).toEqual(['writer']);
  });

  it('goes over none of the other readers when one comes or leaves', () => {
    const { store, request, clock } = setUp();
    let reads = 0;
    const readers = Array.from({ length: 500 }, (_, each) => `r${each}`);
    const count = (hold: StoredHold | undefined) => {
      for (const property of ['expiresAt', 'holder'] as const) {
        const value = hold?.[property];
        Object.defineProperty(hold, property, { get: () => ((reads += 1), value) });
      }
    };
    for (const reader of readers) count(store.tryTake('k', request(reader, 'shared')));
    store.wait('k', request('writer'), () => undefined);
    for (const reader of readers) store.release('k', reader, 0);
    expect(reads).toBeLessThan(10 * readers.length);
    expect(store.report('k')?.holds.map(({ holder }) => holder)).toEqual(['writer']);
    expect(clock.pendingTimers).toBe(0);
  });

  it('ends a place in the queue by a release of its holder', async () => {
    const { take, wait, served, store, clock } = setUp();
    take('one');
    wait('two');
    wait('three');
    expect(store.release('k', 'two', 0)).toBe(false);
    expect(served).toEqual(['not two']);
    expect(store.release('k', 'one', 0)).toBe(true);
    expect(served).toEqual(['not two', 'three']);
    expect(store.release('k', 'one', 0)).toBe(false);
    expect(store.release('nothing', 'one', 0)).toBe(false);
    await clock.advance(1_000);
    expect(store.release('k', 'three', 0)).toBe(false);
    expect([store.size, clock.pendingTimers]).toEqual([0, 0]);
  });

  it('retains a key for nobody: the longest time counts, and after readers it admits readers alone', async () => {
    const { take, wait, served, store, clock } = setUp();
    take('r1', 'shared');
    take('r2', 'shared', 1_000);
    store.release('k', 'r1', 400);
    expect(take('r3', 'shared')).toBeDefined();
    expect(store.report('k')?.holds.map(({ holder }) => holder)).toEqual(['r2', 'r3']);
    store.release('k', 'r2', 100);
    store.release('k', 'r3', 0);
    expect(take('w', 'exclusive')).toBeUndefined();
    wait('writer');
    expect(take('r4', 'shared')).toBeUndefined();
    expect(store.report('k')).toMatchObject({ holds: [], mode: 'shared', waiters: 1, endsAt: 400 });
    await clock.advance(399);
    expect(served).toEqual([]);
    await clock.advance(1);
    expect(served).toEqual(['writer']);
  });

  it('keeps a key for minHold though its lease is shorter, also through renewals', () => {
    const { take, store, clock } = setUp();
    expect(take('one', 'exclusive', 100, 5_000)?.expiresAt).toBe(5_000);
    clock.block(200);
    expect(store.renew('k', 'one', 100)).toBe(true);
    expect(store.report('k')?.endsAt).toBe(5_000);
  });

  it('forgets a parked key when somebody looks after its time', () => {
    const { take, store, clock } = setUp();
    take('one');
    store.release('k', 'one', 400);
    expect(store.size).toBe(1);
    clock.block(400);
    expect(store.report('k')).toBeUndefined();
    expect(store.size).toBe(0);
    expect(store.report('never')).toBeUndefined();
  });

  it('frees a key by force: holders are told, the queue is served', () => {
    const { take, wait, served, lost, store } = setUp();
    expect(store.free('k')).toBe(false);
    take('r1', 'shared');
    take('r2', 'shared');
    wait('writer');
    expect(store.free('k')).toBe(true);
    expect([lost, served]).toEqual([['r1', 'r2'], ['writer']]);
    store.release('k', 'writer', 1_000);
    expect(store.free('k')).toBe(true);
    expect(store.size).toBe(0);
  });

  it('stands firm when somebody who is told of the loss takes the key at once', () => {
    const { store, request } = setUp();
    const lost = () => {
      store.release('k', 'one', 0);
      expect(store.tryTake('k', request('two'))).toBeDefined();
    };
    store.tryTake('k', { ...request('one'), lost });
    store.free('k');
    expect(store.size).toBe(1);
    expect(store.tryTake('k', request('three'))).toBeUndefined();
  });

  it('gives tokens that grow, over releases, force and a wall clock that is set back', () => {
    const { take, store, clock } = setUp();
    const tokens: bigint[] = [];
    for (const step of [0, 60_000, -120_000, 0]) {
      clock.stepWallTime(step);
      tokens.push(take(`h${tokens.length}`)?.token ?? 0n);
      store.free('k');
    }
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => (a < b ? -1 : 1)));
    expect(tokens[0]).toBe(BigInt(Date.UTC(2026, 0, 1)) * 1_000n);
  });

  it('gives one token to readers who hold together', () => {
    const { take, store } = setUp();
    const [one, two] = [take('r1', 'shared'), take('r2', 'shared')];
    store.release('k', 'r1', 0);
    const three = take('r3', 'shared');
    expect(new Set([one?.token, two?.token, three?.token]).size).toBe(1);
  });

  it('lets a thousand waiters leave without a trace', () => {
    const { take, wait, store, clock } = setUp();
    take('one');
    const places = Array.from({ length: 1_000 }, (_, each) => wait(`w${each}`));
    for (const place of places) place();
    store.release('k', 'one', 0);
    expect([store.size, clock.pendingTimers]).toEqual([0, 0]);
  });
});

it('keeps a record for 400 days after it was last written, as Redis does', async () => {
  const { clock, store } = setUp();
  const day = 86_400_000;
  store.records.set('once', 'a');
  store.records.set('again', 'b');
  await clock.advance(399 * day);
  store.records.set('again', 'c');
  await clock.advance(day);
  expect([store.records.get('once'), store.records.get('again'), store.records.size]).toEqual([undefined, 'c', 1]);
});

describe('the memory provider', () => {
  it('competes with another over one store, in one queue', async () => {
    const store = new MemoryStore();
    const one = await startManager({ provider: new MemoryLockProvider({ store }) });
    const { clock } = one;
    const locks = new LockManager({ providers: { main: new MemoryLockProvider({ store }) }, clock });
    await locks.start();
    const lock = await one.locks.acquire('a');
    const waiting = watch(locks.acquire('a'));
    await clock.advance(0);
    expect(waiting.state).toBe('pending');
    await lock.release();
    await clock.advance(0);
    expect(waiting.value?.fencingToken).toBeGreaterThan(lock.fencingToken ?? 0n);
  });

  it('keeps namespaces apart', async () => {
    const store = new MemoryStore();
    const [one, two] = await Promise.all(
      ['one', 'two'].map((namespace) => startManager({ namespace, provider: new MemoryLockProvider({ store }) })),
    );
    await one?.locks.acquire('a');
    await expect(two?.locks.acquire('a', { wait: 0 })).resolves.toBeDefined();
    expect(store.size).toBe(2);
  });

  it('shows readers and their number', async () => {
    const { locks } = await startManager();
    for (let twice = 0; twice < 2; twice += 1) await locks.acquire('a', { mode: 'shared' });
    expect(await locks.admin.inspect('a')).toMatchObject({ mode: 'shared', holders: 2, waiters: 0 });
  });

  it('warns in a worker of a cluster', async () => {
    const { isWorker } = cluster;
    Object.defineProperty(cluster, 'isWorker', { value: true, configurable: true });
    try {
      const { log } = await startManager();
      expect(log).toEqual([expect.stringContaining('this cluster worker')]);
    } finally {
      Object.defineProperty(cluster, 'isWorker', { value: isWorker, configurable: true });
    }
  });

  it('has a store for each application, unless one is given', async () => {
    const provider = new MemoryLockProvider();
    const [one, other] = [await startManager({ provider }), await startManager({ provider })];
    await one.locks.acquire('a');
    await expect(other.locks.tryAcquire('a')).resolves.not.toBeNull();
  });
});
