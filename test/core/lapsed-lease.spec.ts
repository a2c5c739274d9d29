import type { Lock } from '../../lib/api/lock.js';
import { LockLostError } from '../../lib/api/errors.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { BACKENDS, startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

const LEASE = 10_000;
const VALIDITY = LEASE - (LEASE * 0.01 + 2);
const SHARED: LockOptions = { mode: 'shared' };

/** Starts a manager whose provider grants every request, and records the options of all releases. */
async function obliging(fair = true) {
  const provider = ScriptedProvider.obliging({ fair, limits: true });
  const kept: { readonly keepFor: number; readonly failed: boolean }[] = [];
  provider.onRelease = (_, options) => (kept.push(options), 'released');
  const rig = await startManager({ provider });
  const lost = () => rig.events.filter(({ name }) => name === 'lost');
  return { ...rig, provider, kept, lost };
}

describe.each(BACKENDS)(
  'a lease that has expired locally but not yet on the server, before any timer fires (%s backend)',
  (_, provide) => {
    it.each<[string, LockOptions, LockOptions]>([
      ['exclusive for exclusive', {}, {}],
      ['exclusive for shared', {}, SHARED],
      ['exclusive for limited', {}, { limit: 2 }],
      ['shared for exclusive', SHARED, {}],
      ['limited for exclusive', { limit: 2 }, {}],
      ['limited for limited', { limit: 1 }, { limit: 1 }],
    ])('does not block a single attempt: %s', async (_kinds, held, wanted) => {
      const store = new MemoryStore();
      const { locks, clock, names } = await startManager({ provider: provide(store) });
      const other = new LockManager({ providers: { main: provide(store) }, clock });
      await other.start();
      await locks.acquire('a', { lease: LEASE, ...held });
      clock.block(VALIDITY);
      // The server blocks other processes until its own deadline.
      expect(await other.tryAcquire('a', wanted)).toBeNull();
      const lock = await locks.tryAcquire('a', wanted);
      expect(lock?.isHeld()).toBe(true);
      expect(names()).toEqual(['acquired', 'lost', 'acquired']);
      expect(locks.admin.held()).toHaveLength(1);
    });

    it('does not block a single attempt of a listener of the loss', async () => {
      const { locks, clock } = await startManager({ provider: provide(new MemoryStore()) });
      const lock = await locks.acquire('a', { lease: LEASE });
      const trying = new Promise<Lock | null>((resolve) => {
        lock.signal.addEventListener('abort', () => {
          resolve(locks.tryAcquire('a'));
        });
      });
      clock.block(VALIDITY);
      expect(lock.isHeld()).toBe(false);
      expect((await trying)?.isHeld()).toBe(true);
    });

    it('blocks a single attempt until then', async () => {
      const { locks, clock, names } = await startManager({ provider: provide(new MemoryStore()) });
      await locks.acquire('a', { lease: LEASE });
      clock.block(VALIDITY - 1);
      expect(await locks.tryAcquire('a')).toBeNull();
      expect(names()).toEqual(['acquired', 'busy']);
    });

    it('does not block a caller that waits', async () => {
      const { locks, clock, names } = await startManager({ provider: provide(new MemoryStore()) });
      await locks.acquire('a', { lease: LEASE });
      clock.block(VALIDITY);
      const waiting = watch(locks.acquire('a', { wait: 5 }));
      await clock.advance(0);
      expect(waiting.value?.isHeld()).toBe(true);
      expect(names().filter((name) => name === 'lost')).toHaveLength(1);
    });

    it('does not block callers of this process that wait when the loss is detected', async () => {
      const { locks, clock } = await startManager({ provider: provide(new MemoryStore()) });
      const lock = await locks.acquire('a', { lease: LEASE });
      const waiting = [1, 2].map(() => watch(locks.acquire('a', { wait: 60_000 })));
      await clock.advance(0);
      clock.block(VALIDITY);
      expect(lock.isHeld()).toBe(false);
      await clock.advance(0);
      expect(waiting.map(({ value }) => value?.isHeld())).toEqual([true, undefined]);
      await waiting[0]?.value?.release();
      await clock.advance(0);
      expect(waiting[1]?.value?.isHeld()).toBe(true);
    });
  },
);

describe.each([
  ['is fair', true],
  ['is polled', false],
])('with a backend that %s', (_, fair) => {
  it('an expired lock is released before the request of a single attempt', async () => {
    const { locks, clock, provider, lost } = await obliging(fair);
    const lapsed = await locks.acquire('a', { lease: LEASE });
    clock.block(VALIDITY);
    const trying = watch(locks.tryAcquire('a'));
    // In the tick of the call.
    expect(provider.order).toEqual(['acquire a', 'release a', 'acquire a']);
    expect(lost()).toHaveLength(1);
    await clock.advance(0);
    expect([trying.value?.isHeld(), lapsed.isHeld()]).toEqual([true, false]);
    await trying.value?.release();
    expect(provider.order).toEqual(['acquire a', 'release a', 'acquire a', 'release a']);
    expect(clock.pendingTimers).toBe(0);
  });

  it('all expired locks held together are released before the request of a single attempt that they block', async () => {
    const { locks, clock, provider, kept, lost } = await obliging(fair);
    const terms = [{}, {}, { lease: LEASE - 1_000 }, { minHold: 30_000 }];
    const readers = await Promise.all(terms.map((each) => locks.acquire('a', { ...SHARED, lease: LEASE, ...each })));
    expect(provider.order).toEqual(['acquire a', 'acquire a', 'acquire a']);
    clock.block(VALIDITY);
    const writing = watch(locks.tryAcquire('a'));
    expect(provider.order.slice(3)).toEqual(['release a', 'release a', 'release a', 'acquire a']);
    expect(kept.map(({ keepFor }) => keepFor)).toEqual([0, 0, 30_000 - VALIDITY * 0.99]);
    expect(lost()).toHaveLength(4);
    await clock.advance(0);
    expect(writing.value?.isHeld()).toBe(true);
    for (const reader of readers) expect(await reader.release()).toBe('lost');
    expect([lost().length, kept.length]).toEqual([4, 3]);
  });

  it('a lock still valid next to an expired one is kept, and makes a conflicting single attempt busy', async () => {
    const { locks, clock, provider, lost } = await obliging(fair);
    const lapsing = await locks.acquire('a', { ...SHARED, lease: LEASE });
    const lasting = await locks.acquire('a', { ...SHARED, lease: 2 * LEASE });
    clock.block(VALIDITY);
    expect(await locks.tryAcquire('a')).toBeNull();
    expect([lapsing.isHeld(), lasting.isHeld()]).toEqual([false, true]);
    expect(lost()).toHaveLength(1);
    expect(provider.order).toEqual(['acquire a', 'acquire a', 'release a']);
  });

  it('an expired lock is released only once, and the lock is requested for the waiter in the tick of the call', async () => {
    const { locks, clock, provider, lost } = await obliging(fair);
    await locks.acquire('a', { lease: LEASE });
    clock.block(VALIDITY);
    const waiting = watch(locks.acquire('a'));
    expect(provider.order).toEqual(['acquire a', 'release a', 'acquire a']);
    await clock.advance(0);
    expect(waiting.value?.isHeld()).toBe(true);
    await clock.advance(LEASE);
    expect(lost()).toHaveLength(1);
    expect(provider.order.filter((call) => call === 'release a')).toHaveLength(1);
  });

  it('a check that detects the loss sends the request for the waiter, in the same order as a release', async () => {
    const { locks, clock, provider } = await obliging(fair);
    const lock = await locks.acquire('a', { lease: LEASE });
    const waiting = watch(locks.acquire('a', { wait: 60_000 }));
    clock.block(VALIDITY);
    expect(lock.isHeld()).toBe(false);
    expect(provider.order).toEqual(
      fair ? ['acquire a', 'acquire a', 'release a'] : ['acquire a', 'release a', 'acquire a'],
    );
    await clock.advance(0);
    expect(waiting.value?.isHeld()).toBe(true);
    expect(provider.order).toHaveLength(3);
  });
});

/** Calls through which code detects that it lost its lock. Each returns whether the lock is lost. */
const QUESTIONS: readonly [string, (lock: Lock, kept: AbortSignal) => unknown][] = [
  ['isHeld()', (lock) => !lock.isHeld()],
  ['remaining()', (lock) => lock.remaining() === 0],
  ['assertHeld()', (lock) => thrownBy(() => lock.assertHeld()) instanceof LockLostError],
  ['extend()', (lock) => lock.extend().catch((error: unknown) => error instanceof LockLostError)],
  ['a signal that is read now', (lock) => lock.signal.aborted],
  ['a signal that was read earlier', (_, signal) => signal.aborted],
  ['the reason of its signal', (_, signal) => signal.reason instanceof LockLostError],
  ['throwIfAborted() of its signal', (_, signal) => thrownBy(() => signal.throwIfAborted()) instanceof LockLostError],
];

describe.each(QUESTIONS)('a loss detected by %s', (_, ask) => {
  it.each<[string, LockOptions, string, number]>([
    ['at the end of its lease', { lease: LEASE, minHold: 60_000 }, 'expired', VALIDITY],
    ['at the end of its maxHold', { lease: LEASE, minHold: 2_000, maxHold: 2_000 }, 'max-hold', 2_000],
  ])('%s is reported and released only once, without a timer', async (_end, options, reason, heldFor) => {
    const { locks, clock, provider, kept, lost } = await obliging();
    const lock = await locks.acquire('a', options);
    const { signal } = lock;
    let aborts = 0;
    signal.addEventListener('abort', () => (aborts += 1));
    clock.block(heldFor);
    expect([lost().length, kept.length]).toEqual([0, 0]);
    expect(await ask(lock, signal)).toBe(true);
    const report = [expect.objectContaining({ event: expect.objectContaining({ reason, held: heldFor }) as unknown })];
    const release = [
      { keepFor: expect.closeTo((options.minHold as number) - heldFor * 0.99) as unknown, failed: true },
    ];
    expect([lost(), kept, aborts]).toEqual([report, release, 1]);
    expect(signal.reason).toMatchObject({ reason, key: 'a' });
    for (const [, again] of QUESTIONS) expect(await again(lock, signal)).toBe(true);
    // The timers that were due fire late.
    await clock.advance(2 * LEASE);
    expect(await lock.release()).toBe('lost');
    expect([lost(), kept, aborts]).toEqual([report, release, 1]);
    expect([provider.order, clock.pendingTimers]).toEqual([['acquire a', 'release a'], 0]);
  });
});

function thrownBy(work: () => void): unknown {
  try {
    work();
    return undefined;
  } catch (error) {
    return error;
  }
}

describe('the end of maxHold', () => {
  it('is detected by the watchdog, reported and released only once', async () => {
    const { locks, clock, provider, lost } = await obliging();
    const lock = await locks.acquire('a', { lease: LEASE, maxHold: 25_000 });
    await clock.advance(24_999);
    expect(lock.isHeld()).toBe(true);
    await clock.advance(1);
    expect(lost()).toMatchObject([{ event: { reason: 'max-hold', held: 25_000 } }]);
    for (const [, ask] of QUESTIONS) expect(await ask(lock, lock.signal)).toBe(true);
    await clock.advance(LEASE);
    expect(lost()).toHaveLength(1);
    expect(provider.order.filter((call) => call === 'release a')).toHaveLength(1);
  });

  it.each([
    ['a check', false],
    ['the watchdog', true],
  ])('takes the lock from one of several readers but not from the others, detected by %s', async (_, timers) => {
    const { locks, clock, provider, lost } = await obliging();
    const [first, second] = await Promise.all([
      locks.acquire('a', { ...SHARED, lease: LEASE, maxHold: 2_000 }),
      locks.acquire('a', { ...SHARED, lease: LEASE }),
    ]);
    if (timers) await clock.advance(2_000);
    else clock.block(2_000);
    expect([first.isHeld(), second.isHeld()]).toEqual([false, true]);
    await clock.advance(LEASE);
    expect(second.isHeld()).toBe(true);
    expect(provider.order).not.toContain('release a');
    expect(await second.release()).toBe('released');
    expect(await first.release()).toBe('lost');
    expect(lost()).toMatchObject([{ event: { reason: 'max-hold' } }]);
    expect(provider.order.filter((call) => call === 'release a')).toHaveLength(1);
    expect(clock.pendingTimers).toBe(0);
  });
});

/** Ways to lose a lock that several readers share. */
const LOSSES: readonly [string, (rig: Awaited<ReturnType<typeof obliging>>, lock: Lock) => unknown][] = [
  ['the server', ({ provider }, lock) => provider.revoke(lock.holder)],
  [
    'a check',
    ({ clock }, lock) => {
      clock.block(VALIDITY);
      lock.isHeld();
    },
  ],
  ['the watchdog', ({ clock, provider }) => ((provider.onRenew = undefined), clock.advance(LEASE))],
  ['the stop', ({ locks, clock }) => (void locks.stop(), clock.advance(10_000))],
];

describe.each(LOSSES)('a lock of several readers whose loss is detected by %s', (_, lose) => {
  it('is held by none of them, and released as lost, for a listener of one reader', async () => {
    const rig = await obliging();
    const { locks, clock, lost, names } = rig;
    const acquire = () => locks.acquire('a', { ...SHARED, lease: LEASE });
    const [first, second] = await Promise.all([acquire(), acquire()]);
    const seen: unknown[] = [];
    first.signal.addEventListener('abort', () => {
      seen.push(second.isHeld(), second.remaining());
      void second.release().then((result) => seen.push(result));
    });
    await lose(rig, first);
    await clock.advance(0);
    expect(seen).toEqual([false, 0, 'lost']);
    expect([lost().length, names().includes('released')]).toEqual([2, false]);
  });

  it.each([
    ['one reader releases the others', (index: number) => index === 0],
    ['each reader releases all', () => true],
  ])('ends exactly once for each of them if a loss listener of %s', async (_who, listens) => {
    const rig = await obliging();
    const { locks, clock, provider, events, log } = rig;
    const readers = await Promise.all(
      ['r1', 'r2', 'r3'].map((key) => locks.acquire(['a', key], { ...SHARED, lease: LEASE, minHold: 60_000 })),
    );
    expect(provider.order.filter((call) => call === 'acquire a')).toHaveLength(1);
    const unhandled: unknown[] = [];
    const note = (reason: unknown) => unhandled.push(reason);
    process.on('unhandledRejection', note);
    try {
      readers.forEach((reader, index) => {
        if (!listens(index)) return;
        reader.signal.addEventListener('abort', () => {
          for (const each of readers) void each.release();
        });
      });
      await lose(rig, readers[0]!);
      await clock.advance(0);
    } finally {
      process.off('unhandledRejection', note);
    }
    expect(readers.map((reader) => reader.isHeld())).toEqual([false, false, false]);
    const ends = events.filter(
      ({ name, event }) => ['lost', 'released'].includes(name) && 'key' in event && event.key === 'a',
    );
    expect(ends).toHaveLength(3);
    expect(provider.order.filter((call) => call === 'release a')).toHaveLength(1);
    expect([unhandled, log.filter((line) => line.includes('listener'))]).toEqual([[], []]);
    expect(locks.admin.held()).toEqual([]);
    expect(clock.pendingTimers).toBe(0);
  });
});
