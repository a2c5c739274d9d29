import { jest } from '@jest/globals';
import type { LockCapabilities } from '../../lib/api/lock-provider.js';
import { LockCapacityError, LockBusyError, LockUnavailableError } from '../../lib/api/errors.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { startManager, watch } from './manager-rig.js';
import { PollingProvider } from './polling-provider.js';
import { ScriptedProvider } from './scripted-provider.js';

async function started(capabilities: Partial<LockCapabilities> = {}) {
  const provider = new ScriptedProvider({ queue: 'local', ...capabilities });
  const rig = await startManager({ provider });
  const queued = () => {
    const { holder } = provider.asks.at(-1)?.input ?? { holder: '' };
    provider.context.emit({ type: 'waiting', holder });
  };
  return { ...rig, provider, queued };
}

const SHARED: LockOptions = { mode: 'shared' };

describe('the queue in front of a dear backend', () => {
  it('sends one waiter per key to the backend, whatever the crowd', async () => {
    const provider = new PollingProvider(new MemoryStore());
    const { locks, clock } = await startManager({ provider });
    const lock = await locks.acquire('a');
    const crowd = Array.from({ length: 50 }, () => watch(locks.withLock('a', () => undefined, { wait: 60_000 })));
    await clock.advance(100);
    expect(provider.mostWaiters).toBe(1);
    await lock.release();
    await clock.advance(1_000);
    expect(crowd.every(({ state }) => state === 'fulfilled')).toBe(true);
  });

  it('lets the next one ask when the first was served, is busy, or has left', async () => {
    const { locks, clock, provider } = await started();
    const controller = new AbortController();
    const served = watch(locks.acquire('a'));
    const busy = watch(locks.acquire('a'));
    const gone = watch(locks.acquire('a', { signal: controller.signal }));
    const last = watch(locks.acquire('a'));
    expect(provider.asks).toHaveLength(1);
    provider.asks[0]?.grant();
    await clock.advance(0);
    provider.asks[1]?.answer('busy');
    await clock.advance(0);
    controller.abort('enough');
    provider.asks[2]?.answer('busy');
    await clock.advance(0);
    provider.asks[3]?.grant();
    await clock.advance(0);
    expect([served.state, busy.error, gone.error, last.state]).toEqual([
      'fulfilled',
      expect.any(LockBusyError),
      'enough',
      'fulfilled',
    ]);
    expect(provider.asks).toHaveLength(4);
  });

  it('lets a waiter in the middle leave at once, without a word to the backend', async () => {
    const { locks, clock, provider } = await started();
    watch(locks.acquire('a'));
    const short = watch(locks.acquire('a', { wait: 100 }));
    await clock.advance(100);
    expect(short.error).toBeInstanceOf(LockBusyError);
    expect(provider.order).toEqual(['acquire a']);
  });

  it('does not wait for a head whose ask is never answered', async () => {
    const { locks, clock, provider } = await started();
    const head = watch(locks.acquire('a', { wait: 0 }));
    const next = watch(locks.acquire('a', { wait: 10_000 }));
    await clock.advance(2_000);
    expect(head.error).toBeInstanceOf(LockUnavailableError);
    watch(locks.acquire('a', { wait: 10_000 }));
    // What the head is granted after all goes back, and lets nobody ask out of turn.
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect(provider.asks).toHaveLength(2);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(next.state).toBe('fulfilled');
    expect(provider.releases.map(({ input }) => input.holder)).toEqual([
      provider.asks[0]?.input.holder,
      provider.asks[0]?.input.holder,
    ]);
  });

  it('does not call a lock busy that nobody could be asked about, and asks one at a time', async () => {
    const { locks, clock, provider } = await started();
    const down = () => new Promise<never>((_, reject) => clock.setTimer(() => reject(new Error('down')), 100));
    provider.onAcquire = down;
    const line = Array.from({ length: 20 }, () => watch(locks.acquire('a', { wait: 1_000 })));
    const late = watch(locks.tryAcquire('a'));
    await clock.advance(500);
    const trying = watch(locks.tryAcquire('a'));
    await clock.advance(1_500);
    expect(late.value).toBeNull();
    for (const { error } of [...line, trying]) expect(error).toBeInstanceOf(LockUnavailableError);
    // One at a time, however long the line.
    expect(provider.order.filter((call) => call === 'acquire a').length).toBeLessThanOrEqual(20);
  });

  it('is busy again, not down, once the backend has queued somebody', async () => {
    const { locks, clock, provider, queued } = await started();
    const head = watch(locks.acquire('a', { wait: 10_000 }));
    const behind = watch(locks.acquire('a', { wait: 1_000 }));
    const last = watch(locks.acquire('a', { wait: 1_000 }));
    provider.asks[0]?.fail(new Error('a moment'));
    await clock.advance(100);
    expect(provider.asks).toHaveLength(2);
    queued();
    await clock.advance(1_000);
    expect([head.state, behind.error, last.error]).toEqual([
      'pending',
      expect.any(LockBusyError),
      expect.any(LockBusyError),
    ]);
  });

  it('keeps the place of a head that was not answered: what it left in the backend would bar the others, and they it', async () => {
    const { locks, clock, provider } = await started();
    const head = watch(locks.acquire('a', { wait: 10_000 }));
    const next = watch(locks.acquire('a', { wait: 10_000 }));
    provider.asks[0]?.fail(new Error('reply lost'));
    await clock.advance(100);
    const holders = provider.asks.map(({ input }) => input.holder);
    expect(holders).toEqual([holders[0], holders[0]]);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect([head.state, next.state]).toEqual(['fulfilled', 'pending']);
    expect(provider.asks).toHaveLength(3);
  });

  it('serves the next when a head that was not answered has been given back', async () => {
    const { locks, clock, provider } = await started();
    const head = watch(locks.acquire('a', { wait: 0 }));
    const next = watch(locks.acquire('a', { wait: 10_000 }));
    provider.asks[0]?.fail(new Error('reply lost'));
    await clock.advance(0);
    expect(head.error).toBeInstanceOf(LockUnavailableError);
    expect(provider.order).toEqual(['acquire a', 'release a', 'acquire a']);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(next.state).toBe('fulfilled');
  });

  it('spares the others an error that is the own one of the head', async () => {
    const { locks, clock, provider } = await started();
    const head = watch(locks.acquire('a'));
    const next = watch(locks.acquire('a'));
    provider.asks[0]?.fail(new LockCapacityError('pool exhausted'));
    await clock.advance(0);
    expect(head.error).toBeInstanceOf(LockCapacityError);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(next.state).toBe('fulfilled');
  });

  it('says busy to one attempt behind a line', async () => {
    const { locks, provider } = await started();
    watch(locks.acquire('a'));
    expect(await locks.tryAcquire('a')).toBeNull();
    expect(provider.asks).toHaveLength(1);
  });

  it('says once that a caller waits', async () => {
    const { locks, clock, provider, names, queued } = await started();
    watch(locks.acquire('a'));
    watch(locks.acquire('a'));
    queued();
    provider.asks[0]?.grant();
    await clock.advance(0);
    queued();
    expect(names()).toEqual(['waiting', 'waiting', 'acquired']);
  });
});

describe('readers in that queue', () => {
  it('enter together as one lock of the backend, which lasts until the last has left', async () => {
    const { locks, clock, provider } = await started();
    const readers = [1, 2, 3].map(() => watch(locks.acquire('a', SHARED)));
    provider.asks[0]?.grant({ fencingToken: 7n });
    await clock.advance(0);
    expect(provider.asks).toHaveLength(1);
    expect(readers.map(({ value }) => value?.fencingToken)).toEqual([7n, 7n, 7n]);
    expect(new Set(readers.map(({ value }) => value?.holder)).size).toBe(3);
    // The one whose id the backend knows leaves first.
    expect(await readers[0]?.value?.release()).toBe('released');
    expect(await readers[1]?.value?.release()).toBe('released');
    expect(provider.releases).toHaveLength(0);
    const last = watch(readers[2]?.value?.release() ?? Promise.reject(new Error()));
    expect(provider.releases[0]?.input.holder).toBe(provider.asks[0]?.input.holder);
    provider.releases[0]?.answer('unknown');
    await clock.advance(100);
    // Sent again under the id that the backend knows.
    expect(last.value).toBe('pending');
    expect(provider.releases[1]?.input.holder).toBe(provider.asks[0]?.input.holder);
  });

  it('that come later form the next group; those behind a writer stay behind it', async () => {
    const { locks, clock, provider } = await started();
    const first = watch(locks.acquire('a', SHARED));
    const writer = watch(locks.acquire('a'));
    const behind = watch(locks.acquire('a', SHARED));
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect([first.state, writer.state, behind.state]).toEqual(['fulfilled', 'pending', 'pending']);
    expect(provider.asks[1]?.input.mode).toBe('exclusive');
    const late = watch(locks.acquire('a', SHARED));
    provider.asks[1]?.grant();
    await clock.advance(0);
    provider.asks[2]?.grant();
    await clock.advance(0);
    expect([behind.state, late.state]).toEqual(['fulfilled', 'fulfilled']);
    expect(provider.asks).toHaveLength(3);
  });

  it('share no lock on other terms', async () => {
    const { locks, clock, provider } = await started();
    const readers = [SHARED, { lease: 1_000 }, { minHold: 500 }, { renew: false }, { renew: false, wait: 4_000 }].map(
      (options) => watch(locks.acquire('a', { ...SHARED, ...options })),
    );
    for (let each = 0; each < 4; each += 1) {
      provider.asks[each]?.grant();
      await clock.advance(0);
    }
    expect(readers.map(({ state }) => state)).toEqual(readers.map(() => 'fulfilled'));
    expect(provider.asks).toHaveLength(4);
  });

  it('are renewed once for all, by the longest lease that one of them was promised', async () => {
    const { locks, clock, provider } = await started();
    const readers = [1, 2].map(() => watch(locks.acquire('a', { ...SHARED, lease: 30_000 })));
    provider.asks[0]?.grant();
    await clock.advance(0);
    const extending = watch(readers[0]?.value?.extend(1_000) ?? Promise.reject(new Error()));
    expect(provider.renewals[0]?.input).toMatchObject({
      lease: 30_000,
      grant: { holder: provider.asks[0]?.input.holder },
    });
    provider.renewals[0]?.answer(provider.acknowledge(provider.renewals[0].input));
    await clock.advance(0);
    expect(extending.state).toBe('fulfilled');
    const renewedAt: number[] = [];
    provider.onRenew = (renewal) => {
      renewedAt.push(clock.now());
      return Promise.resolve(provider.acknowledge(renewal));
    };
    await clock.advance(60_000);
    expect(renewedAt.length).toBeGreaterThan(1);
    expect(new Set(renewedAt).size).toBe(renewedAt.length);
    expect(readers.map(({ value }) => value?.isHeld())).toEqual([true, true]);
  });

  it('lose it together', async () => {
    const { locks, clock, provider, names } = await started();
    const readers = [1, 2, 3].map(() => watch(locks.acquire('a', SHARED)));
    provider.onRelease = () => 'lost';
    provider.asks[0]?.grant();
    await clock.advance(0);
    await readers[0]?.value?.release();
    provider.context.emit({ type: 'lost', holder: provider.asks[0]?.input.holder ?? '' });
    expect(readers.map(({ value }) => value?.isHeld())).toEqual([false, false, false]);
    expect(names().filter((name) => name === 'lost')).toHaveLength(2);
    expect(provider.order.filter((call) => call === 'release a')).toHaveLength(1);
  });

  it('that make one attempt are not busy because another reader is being answered', async () => {
    const { locks, clock, provider, queued } = await started();
    const granted = [1, 2].map(() => watch(locks.tryAcquire('a', SHARED)));
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect(granted.map(({ value }) => value?.isHeld())).toEqual([true, true]);

    const behindQueued = [watch(locks.acquire('b', SHARED)), watch(locks.tryAcquire('b', SHARED))];
    queued();
    await clock.advance(0);
    expect(behindQueued.map(({ state, value }) => [state, value])).toEqual([
      ['pending', undefined],
      ['fulfilled', null],
    ]);
    expect(await locks.tryAcquire('b', SHARED)).toBeNull();

    const behindNothing = [1, 2].map(() => watch(locks.tryAcquire('c', SHARED)));
    await clock.advance(3_000);
    expect(behindNothing.map(({ error }) => error instanceof LockUnavailableError)).toEqual([true, true]);
  });

  it('that make one attempt are not compared with all before them', async () => {
    const { locks, clock, provider } = await started();
    const compared = jest.spyOn(Set.prototype, 'values');
    const iterated = jest.spyOn(Set.prototype, Symbol.iterator);
    const readers = Array.from({ length: 300 }, () => watch(locks.acquire('a', { ...SHARED, wait: 0 })));
    const looks = compared.mock.calls.length + iterated.mock.calls.length;
    compared.mockRestore();
    iterated.mockRestore();
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect(readers.every(({ value }) => value?.isHeld())).toBe(true);
    expect(provider.asks).toHaveLength(1);
    expect(looks).toBeLessThan(readers.length);
  });

  it('that make one attempt are busy behind a writer, and no longer when it has left', async () => {
    const { locks, clock, provider } = await started();
    const first = watch(locks.acquire('a', SHARED));
    const leaving = new AbortController();
    const writer = watch(locks.acquire('a', { signal: leaving.signal }));
    expect(await locks.tryAcquire('a', SHARED)).toBeNull();
    leaving.abort('enough');
    await clock.advance(0);
    const second = watch(locks.tryAcquire('a', SHARED));
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect([first.state, writer.error, second.value?.isHeld()]).toEqual(['fulfilled', 'enough', true]);
  });
});

describe('limited holders in that queue', () => {
  const limited = { limits: true } as const;

  it('ask one after the other, each as soon as the one before was granted', async () => {
    const { locks, clock, provider } = await started(limited);
    const pool = [{ wait: 0 }, { wait: 10_000 }, { wait: 0 }].map((options) =>
      watch(locks.acquire('a', { limit: 3, ...options })),
    );
    for (let each = 0; each < pool.length; each += 1) {
      expect(provider.asks).toHaveLength(each + 1);
      provider.asks[each]?.grant();
      await clock.advance(0);
    }
    expect(pool.map(({ value }) => value?.isHeld())).toEqual([true, true, true]);
    expect(new Set(pool.map(({ value }) => value?.fencingToken)).size).toBe(3);
  });

  it('that make one attempt are busy with the first one that is, unless they want less', async () => {
    const { locks, clock, provider } = await started(limited);
    const terms = [{ limit: 3, weight: 2 }, { limit: 3, weight: 3 }, { limit: 2, weight: 2 }, { limit: 3 }];
    const pool = terms.map((options) => watch(locks.tryAcquire('a', options)));
    provider.asks[0]?.answer('busy');
    await clock.advance(0);
    expect(pool.map(({ value }) => value)).toEqual([null, null, null, undefined]);
    expect(provider.asks).toHaveLength(2);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(pool[3]?.value?.isHeld()).toBe(true);
  });

  it('that make one attempt are not busy because another caller has left', async () => {
    const { locks, clock, provider } = await started(limited);
    const leaving = new AbortController();
    watch(locks.acquire('a', { limit: 2, signal: leaving.signal }));
    const attempt = watch(locks.tryAcquire('a', { limit: 2 }));
    leaving.abort('enough');
    provider.asks[0]?.answer('busy');
    await clock.advance(0);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(attempt.value?.isHeld()).toBe(true);
  });

  it('that make one attempt do not overtake a waiter', async () => {
    const { locks, provider, queued } = await started(limited);
    watch(locks.acquire('a', { limit: 2, weight: 2 }));
    const attempt = watch(locks.tryAcquire('a', { limit: 2 }));
    queued();
    await attempt.promise;
    expect(attempt.value).toBeNull();
    expect(await locks.tryAcquire('a', { limit: 2 })).toBeNull();
    expect(provider.asks).toHaveLength(1);
  });

  it('and exclusive ones do not hold together', async () => {
    const { locks, provider } = await started(limited);
    watch(locks.tryAcquire('a', { limit: 2 }));
    expect(await locks.tryAcquire('a')).toBeNull();
    watch(locks.tryAcquire('b'));
    expect(await locks.tryAcquire('b', { limit: 2 })).toBeNull();
    expect(provider.asks).toHaveLength(2);
  });
});

describe('an outage under a crowd', () => {
  it('is reported once, and callers that come do not end the pause of the one that asks', async () => {
    const { locks, clock, provider, names, log } = await started();
    let asks = 0;
    provider.onAcquire = () => {
      asks += 1;
      throw new LockUnavailableError('down', { sent: false });
    };
    const crowd = [];
    for (let caller = 0; caller < 200; caller += 1) {
      crowd.push(watch(locks.acquire('a', { wait: 60_000 })));
      await clock.advance(10);
    }
    expect(asks).toBeLessThan(10);
    expect(names().filter((name) => name === 'unavailable')).toHaveLength(1);
    expect(log).toEqual(['Lock provider "main" does not answer: down']);
    await clock.advance(70_000);
    expect(crowd.every(({ state }) => state === 'rejected')).toBe(true);
  });

  it('goes on after a backend that throws instead of rejecting', async () => {
    const { locks, clock, provider } = await started();
    const first = watch(locks.acquire('a'));
    const second = watch(locks.acquire('a'));
    provider.acquire = () => {
      throw new TypeError('a bug');
    };
    provider.asks[0]?.answer('busy');
    await clock.advance(0);
    expect(first.error).toBeInstanceOf(LockBusyError);
    await clock.advance(10_000);
    expect(second.error).toMatchObject({ code: 'LOCK_UNAVAILABLE', cause: expect.any(TypeError) as unknown });
  });
});
