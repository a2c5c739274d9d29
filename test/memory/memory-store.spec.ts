import cluster from 'node:cluster';
import type { LockMode } from '../../lib/api/lock-mode.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import type { StoredHold } from '../../lib/providers/memory/stored-hold.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { startManager } from '../core/manager-rig.js';

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

describe('the memory store', () => {
  it('still knows its holders after thousands of grants and a sweep of expired locks', async () => {
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

  it('admits readers behind a writer when the writer leaves', () => {
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

  it('does not iterate over the other readers when one arrives or leaves', () => {
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

  it('retains a key for the longest requested time, and admits only readers after readers', async () => {
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

  it('keeps a key for minHold even if its lease is shorter, also through renewals', () => {
    const { take, store, clock } = setUp();
    expect(take('one', 'exclusive', 100, 5_000)?.expiresAt).toBe(5_000);
    clock.block(200);
    expect(store.renew('k', 'one', 100)).toBe(true);
    expect(store.report('k')?.endsAt).toBe(5_000);
  });

  it('removes an expired retained key when it is next accessed', () => {
    const { take, store, clock } = setUp();
    take('one');
    store.release('k', 'one', 400);
    expect(store.size).toBe(1);
    clock.block(400);
    expect(store.report('k')).toBeUndefined();
    expect(store.size).toBe(0);
    expect(store.report('never')).toBeUndefined();
  });

  it('stays consistent if a loss listener immediately acquires the key', () => {
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

  it('gives one token to readers that hold together', () => {
    const { take, store } = setUp();
    const [one, two] = [take('r1', 'shared'), take('r2', 'shared')];
    store.release('k', 'r1', 0);
    const three = take('r3', 'shared');
    expect(new Set([one?.token, two?.token, three?.token]).size).toBe(1);
  });
});

it('a record is kept for 400 days after its last write, as in Redis', async () => {
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
  it('warns in a cluster worker', async () => {
    const { isWorker } = cluster;
    Object.defineProperty(cluster, 'isWorker', { value: true, configurable: true });
    try {
      const { log } = await startManager();
      expect(log).toEqual([expect.stringContaining('this cluster worker')]);
    } finally {
      Object.defineProperty(cluster, 'isWorker', { value: isWorker, configurable: true });
    }
  });

  it('has a separate store for each application, unless one is given', async () => {
    const provider = new MemoryLockProvider();
    const [one, other] = [await startManager({ provider }), await startManager({ provider })];
    await one.locks.acquire('a');
    await expect(other.locks.tryAcquire('a')).resolves.not.toBeNull();
  });
});
