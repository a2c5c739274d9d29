import { jest } from '@jest/globals';
import type { LockEventName } from '../../lib/api/lock-events.js';
import type { FakeClock } from '../../lib/testing/fake-clock.js';
import type { LockCapabilities } from '../../lib/api/lock-provider.js';
import { LockCapacityError, LockBusyError, LockUnavailableError } from '../../lib/api/errors.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { startManager, watch, PollingProvider } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

async function started(capabilities: Partial<LockCapabilities> = {}) {
  const provider = new ScriptedProvider(capabilities);
  const rig = await startManager({ provider });
  const queued = () => {
    provider.asks.at(-1)?.input.waits();
  };
  return { ...rig, provider, queued };
}

const SHARED: LockOptions = { mode: 'shared' };

let locks: LockManager;
let clock: FakeClock;
let names: () => LockEventName[];
let log: string[];
let provider: ScriptedProvider;
let queued: () => void;
beforeEach(async () => {
  ({ locks, clock, names, log, provider, queued } = await started());
});

describe('the queue of a key', () => {
  it('sends one request per key to the backend, however many callers wait, and none while its process holds the key', async () => {
    const store = new MemoryStore();
    const provider = new PollingProvider(store);
    const { locks, clock } = await startManager({ provider });
    const other = new LockManager({ providers: { main: new PollingProvider(store) }, clock });
    await other.start();
    const own = await locks.acquire('a');
    watch(locks.acquire('a', { wait: 50 }));
    await clock.advance(100);
    expect(provider.mostWaiters).toBe(0);
    await own.release();
    const lock = await other.acquire('a');
    const crowd = Array.from({ length: 50 }, () => watch(locks.withLock('a', () => undefined, { wait: 60_000 })));
    await clock.advance(100);
    expect(provider.mostWaiters).toBe(1);
    await lock.release();
    await clock.advance(1_000);
    expect(crowd.every(({ state }) => state === 'fulfilled')).toBe(true);
  });

  it('requests the lock for the next caller when the first was served, was busy, or left', async () => {
    const controller = new AbortController();
    const served = watch(locks.acquire('a'));
    const busy = watch(locks.acquire('a'));
    const gone = watch(locks.acquire('a', { signal: controller.signal }));
    const last = watch(locks.acquire('a'));
    expect(provider.asks).toHaveLength(1);
    provider.onRelease = () => 'released';
    provider.asks[0]?.grant();
    await clock.advance(0);
    await served.value?.release();
    provider.asks[1]?.answer('busy');
    await clock.advance(0);
    controller.abort('enough');
    // The request of the caller that left serves the next.
    provider.asks[2]?.grant();
    await clock.advance(0);
    expect([served.state, busy.error, gone.error, last.state]).toEqual([
      'fulfilled',
      expect.any(LockBusyError),
      'enough',
      'fulfilled',
    ]);
    expect(provider.asks).toHaveLength(3);
  });

  it('does not wait for a first caller whose request gets no response', async () => {
    const head = watch(locks.acquire('a', { wait: 0 }));
    const next = watch(locks.acquire('a', { wait: 10_000 }));
    await clock.advance(2_000);
    expect(head.error).toBeInstanceOf(LockUnavailableError);
    const last = watch(locks.acquire('a', { wait: 10_000 }));
    // The late grant goes to the next caller, and only to that one.
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect([next.state, last.state]).toEqual(['fulfilled', 'pending']);
    expect(provider.order).toEqual(['acquire a']);
  });

  it('reports busy, not unavailable, once the backend has queued a retry', async () => {
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

  it('retries the request of a first caller that left without a response for the next caller, under the same id', async () => {
    const head = watch(locks.acquire('a', { wait: 0 }));
    const next = watch(locks.acquire('a', { wait: 10_000 }));
    provider.asks[0]?.fail(new Error('response lost'));
    await clock.advance(0);
    expect(head.error).toBeInstanceOf(LockUnavailableError);
    await clock.advance(50);
    expect(provider.order).toEqual(['acquire a', 'acquire a']);
    expect(provider.asks[1]?.input.id).toBe(provider.asks[0]?.input.id);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(next.state).toBe('fulfilled');
  });

  describe('on a backend that reconnects automatically', () => {
    const reconnecting = async (commandTimeout: number) => {
      const rig = await started();
      rig.provider.commandTimeout = commandTimeout;
      return rig;
    };

    it.each([0, 10])('retries for a caller with wait: %i, which the first failure does not reject', async (wait) => {
      const { locks, clock, provider } = await reconnecting(2_000);
      const caller = watch(locks.acquire('a', { wait }));
      // The first connection is silently dead, and the second is not yet established.
      await clock.advance(2_000);
      provider.asks[0]?.fail(new Error('silent'));
      await clock.advance(50);
      provider.asks[1]?.fail(new LockUnavailableError('not sent', { sent: false }));
      await clock.advance(100);
      expect([caller.state, provider.asks.length]).toEqual(['pending', 3]);
      expect(provider.asks[2]?.input).toMatchObject({ id: provider.asks[0]?.input.id, wait: 0 });
      provider.asks[2]?.grant();
      await clock.advance(0);
      expect(caller.value?.isHeld()).toBe(true);
    });

    it('rejects such a caller as busy if the backend finally reports busy', async () => {
      const { locks, clock, provider } = await reconnecting(2_000);
      const caller = watch(locks.tryAcquire('a'));
      provider.asks[0]?.fail(new Error('ended'));
      await clock.advance(50);
      provider.asks[1]?.answer('busy');
      await clock.advance(0);
      expect(caller).toMatchObject({ state: 'fulfilled', value: null });
    });

    it('retries when the backend reports its recovery', async () => {
      const { locks, clock, provider } = await reconnecting(2_000);
      const caller = watch(locks.tryAcquire('a'));
      provider.asks[0]?.fail(new Error('ended'));
      await clock.advance(0);
      provider.context.emit({ type: 'recovered' });
      await clock.advance(0);
      provider.asks[1]?.grant();
      await clock.advance(0);
      expect(caller.value?.isHeld()).toBe(true);
    });

    it('rejects a caller after the command timeout and a second, and a later caller on its first failure', async () => {
      const { locks, clock, provider } = await reconnecting(2_000);
      provider.onAcquire = () => Promise.reject(new LockUnavailableError('down', { sent: false }));
      const first = watch(locks.tryAcquire('a'));
      await clock.advance(500);
      const second = watch(locks.tryAcquire('b'));
      await clock.advance(400);
      expect([first.state, second.state]).toEqual(['pending', 'pending']);
      // Counted from the first failure.
      await clock.advance(2_100);
      expect([first.error, second.error]).toEqual([expect.any(LockUnavailableError), expect.any(LockUnavailableError)]);
      const asks = provider.order.filter((call) => call === 'acquire c').length;
      const third = watch(locks.tryAcquire('c'));
      await clock.advance(0);
      expect(third.error).toBeInstanceOf(LockUnavailableError);
      expect(provider.order.filter((call) => call === 'acquire c').length - asks).toBe(1);
    });

    it('reports whether any attempt may have reached the backend', async () => {
      const { locks, clock, provider } = await reconnecting(0);
      provider.onAcquire = () => Promise.reject(new LockUnavailableError('down', { sent: false }));
      const unsent = watch(locks.acquire('a', { wait: 100 }));
      await clock.advance(2_000);
      expect(unsent.error).toMatchObject({ code: 'LOCK_UNAVAILABLE', sent: false });
      provider.onAcquire = () => {
        provider.onAcquire = () => Promise.reject(new LockUnavailableError('down', { sent: false }));
        return Promise.reject(new Error('The connection was closed.'));
      };
      const sent = watch(locks.acquire('b', { wait: 100 }));
      await clock.advance(2_000);
      expect(sent.error).toMatchObject({ code: 'LOCK_UNAVAILABLE', sent: true });
    });

    it('lets a caller with wait: 0 join a paused request, unless the backend is known to be down', async () => {
      const { locks, clock, provider } = await reconnecting(0);
      const waiting = watch(locks.acquire('a', { wait: 10_000 }));
      provider.asks[0]?.fail(new Error('ended'));
      await clock.advance(0);
      const joining = watch(locks.tryAcquire('a'));
      await clock.advance(0);
      expect(joining.state).toBe('pending');
      provider.onAcquire = () => Promise.reject(new Error('down'));
      await clock.advance(2_100);
      expect(joining.error).toBeInstanceOf(LockUnavailableError);
      const late = watch(locks.tryAcquire('a'));
      await clock.advance(0);
      expect([late.error, waiting.state]).toEqual([expect.any(LockUnavailableError), 'pending']);
    });

    it('ends a longer wait exactly at its deadline while the backend is down', async () => {
      const { locks, clock, provider } = await reconnecting(2_000);
      const caller = watch(locks.acquire('a', { wait: 5_000 }));
      await clock.advance(4_000);
      provider.onAcquire = () => Promise.reject(new Error('down'));
      provider.asks[0]?.fail(new Error('down'));
      await clock.advance(999);
      expect(caller.state).toBe('pending');
      await clock.advance(1);
      expect(caller.error).toBeInstanceOf(LockUnavailableError);
    });
  });

  it('does not reject the other callers with an error specific to the first', async () => {
    const head = watch(locks.acquire('a'));
    const next = watch(locks.acquire('a'));
    provider.asks[0]?.fail(new LockCapacityError('pool exhausted'));
    await clock.advance(0);
    expect(head.error).toBeInstanceOf(LockCapacityError);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(next.state).toBe('fulfilled');
  });

  it('rejects a single attempt as busy behind a queued request, even if the request is queued during the attempt', async () => {
    watch(locks.acquire('a'));
    const early = watch(locks.tryAcquire('a'));
    await clock.advance(500);
    expect(early.state).toBe('pending');
    queued();
    await clock.advance(0);
    expect(early.value).toBeNull();
    expect(await locks.tryAcquire('a')).toBeNull();
    expect(provider.asks).toHaveLength(1);
  });

  it('reports only once that a caller waits', async () => {
    watch(locks.acquire('a'));
    watch(locks.acquire('a'));
    queued();
    provider.asks[0]?.grant();
    await clock.advance(0);
    queued();
    expect(names()).toEqual(['waiting', 'waiting', 'acquired']);
  });
});

describe('readers in the queue of a key', () => {
  it('enter together under one grant, which lasts until the last one leaves', async () => {
    const readers = [1, 2, 3].map(() => watch(locks.acquire('a', SHARED)));
    provider.asks[0]?.grant({ fencingToken: 7n });
    await clock.advance(0);
    expect(provider.asks).toHaveLength(1);
    expect(readers.map(({ value }) => value?.fencingToken)).toEqual([7n, 7n, 7n]);
    expect(new Set(readers.map(({ value }) => value?.holder)).size).toBe(3);
    // The reader whose id the backend knows leaves first.
    expect(await readers[0]?.value?.release()).toBe('released');
    expect(await readers[1]?.value?.release()).toBe('released');
    expect(provider.releases).toHaveLength(0);
    const last = watch(readers[2]?.value?.release() ?? Promise.reject(new Error()));
    expect(provider.releases[0]?.input.id).toBe(provider.asks[0]?.input.id);
    provider.releases[0]?.answer('unknown');
    await clock.advance(100);
    // The retry uses the id that the backend knows.
    expect(last.value).toBe('pending');
    expect(provider.releases[1]?.input.id).toBe(provider.asks[0]?.input.id);
  });

  it('form the next group if they arrive later, and stay behind a writer', async () => {
    const first = watch(locks.acquire('a', SHARED));
    const writer = watch(locks.acquire('a'));
    const behind = watch(locks.acquire('a', SHARED));
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect([first.state, writer.state, behind.state]).toEqual(['fulfilled', 'pending', 'pending']);
    expect(provider.asks[1]?.input.mode).toBe('exclusive');
    const late = watch(locks.acquire('a', SHARED));
    provider.onRelease = () => 'released';
    await first.value?.release();
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect([writer.state, behind.state]).toEqual(['fulfilled', 'pending']);
    await writer.value?.release();
    provider.asks[2]?.grant();
    await clock.advance(0);
    expect([behind.state, late.state]).toEqual(['fulfilled', 'fulfilled']);
    expect(provider.asks).toHaveLength(3);
  });

  it('do not share a grant if their options differ', async () => {
    const readers = [SHARED, { wait: 4_000 }, { lease: 1_000 }, { minHold: 500 }].map((options) =>
      watch(locks.acquire('a', { ...SHARED, ...options })),
    );
    for (let each = 0; each < 3; each += 1) {
      provider.asks[each]?.grant();
      await clock.advance(0);
    }
    expect(readers.map(({ state }) => state)).toEqual(readers.map(() => 'fulfilled'));
    expect(provider.asks).toHaveLength(3);
  });

  it('are renewed together, with the longest lease that any of them was promised', async () => {
    const readers = [1, 2].map(() => watch(locks.acquire('a', { ...SHARED, lease: 30_000 })));
    provider.asks[0]?.grant();
    await clock.advance(0);
    const extending = watch(readers[0]?.value?.extend(1_000) ?? Promise.reject(new Error()));
    expect(provider.renewals[0]?.input).toMatchObject({
      lease: 30_000,
      request: { id: provider.asks[0]?.input.id },
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

  it('lose the lock together', async () => {
    const readers = [1, 2, 3].map(() => watch(locks.acquire('a', SHARED)));
    provider.onRelease = () => 'lost';
    provider.asks[0]?.grant();
    await clock.advance(0);
    await readers[0]?.value?.release();
    provider.revoke(provider.asks[0]?.input.id ?? '');
    expect(readers.map(({ value }) => value?.isHeld())).toEqual([false, false, false]);
    expect(names().filter((name) => name === 'lost')).toHaveLength(2);
    expect(provider.order.filter((call) => call === 'release a')).toHaveLength(1);
  });

  it("with a single attempt are not busy because another reader's request is in flight", async () => {
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

  it('with a single attempt are not compared with all earlier callers', async () => {
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

  it('with a single attempt are busy behind a writer, but no longer after the writer leaves', async () => {
    const first = watch(locks.acquire('a', SHARED));
    const leaving = new AbortController();
    const writer = watch(locks.acquire('a', { signal: leaving.signal }));
    provider.asks[0]?.grant();
    await clock.advance(0);
    const behind = watch(locks.tryAcquire('a', SHARED));
    queued();
    await clock.advance(0);
    expect(behind.value).toBeNull();
    expect(await locks.tryAcquire('a', SHARED)).toBeNull();
    leaving.abort('enough');
    await clock.advance(0);
    const second = watch(locks.tryAcquire('a', SHARED));
    provider.asks[2]?.grant();
    await clock.advance(0);
    expect([first.state, writer.error, second.value?.isHeld()]).toEqual(['fulfilled', 'enough', true]);
  });
});

describe('limited holders in the queue of a key', () => {
  const limited = { limits: true } as const;

  it('are requested one after another, each as soon as the previous one is granted', async () => {
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
  });

  it('with a single attempt are busy as soon as one of them is, unless they need less', async () => {
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

  it('with a single attempt are not busy because another caller left', async () => {
    const { locks, clock, provider } = await started(limited);
    const leaving = new AbortController();
    watch(locks.acquire('a', { limit: 2, signal: leaving.signal }));
    const attempt = watch(locks.tryAcquire('a', { limit: 2 }));
    leaving.abort('enough');
    await clock.advance(0);
    expect(attempt.state).toBe('pending');
    // The request serves the next caller.
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect(attempt.value?.isHeld()).toBe(true);
    expect(provider.asks).toHaveLength(1);
  });

  it('with a single attempt do not overtake a waiter', async () => {
    const { locks, provider, queued } = await started(limited);
    watch(locks.acquire('a', { limit: 2, weight: 2 }));
    const attempt = watch(locks.tryAcquire('a', { limit: 2 }));
    queued();
    await attempt.promise;
    expect(attempt.value).toBeNull();
    expect(await locks.tryAcquire('a', { limit: 2 })).toBeNull();
    expect(provider.asks).toHaveLength(1);
  });

  it('do not hold together with exclusive ones', async () => {
    const { locks, clock, provider } = await started(limited);
    const pairs = [
      [watch(locks.tryAcquire('a', { limit: 2 })), watch(locks.tryAcquire('a'))],
      [watch(locks.tryAcquire('b')), watch(locks.tryAcquire('b', { limit: 2 }))],
    ];
    for (const ask of provider.asks) ask.grant();
    await clock.advance(0);
    for (const [one, other] of pairs) expect([one?.value?.isHeld(), other?.value]).toEqual([true, null]);
    expect(await locks.tryAcquire('a')).toBeNull();
    expect(provider.asks).toHaveLength(2);
  });
});

describe('an outage with many waiters', () => {
  it('is reported only once, and new callers do not cut the retry pause short', async () => {
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
    expect(log).toEqual(['Lock provider "main" is not responding: down']);
    await clock.advance(70_000);
    for (const { error } of crowd) expect(error).toBeInstanceOf(LockUnavailableError);
  });

  it('is survived if the backend throws instead of rejecting', async () => {
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

describe('the request of a process', () => {
  it.each([
    ['before the release on a fair backend', true, ['acquire a', 'acquire a', 'release a']],
    ['after the release on other backends', false, ['acquire a', 'release a', 'acquire a']],
  ])('is sent %s, in the same tick', async (_, fair, order) => {
    const { locks, clock, provider } = await started({ fair });
    const first = watch(locks.acquire('a'));
    provider.asks[0]?.grant();
    await clock.advance(0);
    watch(locks.acquire('a'));
    void first.value?.release();
    expect(provider.order).toEqual(order);
  });

  it('outlives its caller, and carries the age of the oldest remaining caller', async () => {
    const leaving = new AbortController();
    const first = watch(locks.acquire('a', { signal: leaving.signal }));
    queued();
    await clock.advance(30);
    const second = watch(locks.acquire('a'));
    await clock.advance(70);
    leaving.abort('enough');
    await clock.advance(0);
    expect(first.error).toBe('enough');
    expect(provider.order).toEqual(['acquire a']);
    expect(provider.asks[0]?.input.signal.aborted).toBe(false);
    provider.asks[0]?.fail(new LockUnavailableError('connection lost'));
    await clock.advance(50);
    const [one, again] = provider.asks.map(({ input }) => input);
    expect(again?.id).toBe(one?.id);
    expect(again?.since).toBe(30);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(second.value?.isHeld()).toBe(true);
  });

  it.each<[string, LockOptions]>([
    ['mode', { mode: 'shared' }],
    ['lease', { lease: 5_000 }],
    ['minHold', { minHold: 500 }],
  ])('is released and replaced if its caller leaves and the next needs another %s', async (_, options) => {
    const leaving = new AbortController();
    watch(locks.acquire('a', { signal: leaving.signal }));
    queued();
    const next = watch(locks.acquire('a', options));
    leaving.abort('enough');
    await clock.advance(0);
    const [one, other] = provider.asks.map(({ input }) => input);
    expect(one?.signal.aborted).toBe(true);
    expect(provider.releases.map(({ input }) => input.id)).toEqual([one?.id]);
    expect(other?.id).not.toBe(one?.id);
    // The id is dead, so a grant that arrives for it is released.
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect(next.state).toBe('pending');
    expect(provider.releases.map(({ input }) => input.id)).toEqual([one?.id, one?.id]);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(next.value?.isHeld()).toBe(true);
  });

  it('matches the mode of the first caller when modes are mixed and callers leave', async () => {
    provider.onRelease = () => 'released';
    const leaving = new AbortController();
    const callers = [{ signal: leaving.signal }, SHARED, SHARED, {}, SHARED].map((options) =>
      watch(locks.acquire('a', options)),
    );
    queued();
    leaving.abort('enough');
    await clock.advance(0);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(provider.asks.map(({ input }) => input.mode)).toEqual(['exclusive', 'shared', 'exclusive']);
    const held = () => callers.map(({ value }) => value?.isHeld() ?? false);
    expect(held()).toEqual([false, true, true, false, false]);
    await callers[1]?.value?.release();
    await callers[2]?.value?.release();
    provider.asks[2]?.grant();
    await clock.advance(0);
    expect(held()).toEqual([false, false, false, true, false]);
    await callers[3]?.value?.release();
    provider.asks[3]?.grant();
    await clock.advance(0);
    expect(held()).toEqual([false, false, false, false, true]);
  });

  it('is retried only once if its grant has expired on arrival and a single attempt waited for it', async () => {
    const head = watch(locks.acquire('a'));
    const trying = watch(locks.tryAcquire('a'));
    provider.asks[0]?.grant({ validUntil: clock.now() });
    await clock.advance(0);
    // Not busy, because no process is known to hold the key.
    expect(trying.error).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await clock.advance(50);
    expect(provider.asks).toHaveLength(2);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(head.value?.isHeld()).toBe(true);
    expect(provider.releases.map(({ input }) => input.id)).toEqual([provider.asks[0]?.input.id]);
  });

  it('is not sent for a single attempt that conflicts with readers of its own process', async () => {
    const reader = watch(locks.acquire('a', SHARED));
    const writing = watch(locks.tryAcquire('a'));
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect([reader.value?.isHeld(), writing.value]).toEqual([true, null]);
    expect(provider.asks).toHaveLength(1);
  });

  it('is not sent for thousands of such attempts, which are rejected one after another', async () => {
    const reader = watch(locks.acquire('a', SHARED));
    const writing = Array.from({ length: 9_000 }, () => watch(locks.tryAcquire('a')));
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect(reader.value?.isHeld()).toBe(true);
    expect(new Set(writing.map(({ value }) => value))).toEqual(new Set([null]));
    expect(locks.admin.waiting()).toEqual([]);
  });

  it('is resent for the next caller if it is refused after its caller left, and the next caller is not rejected', async () => {
    const leaving = new AbortController();
    watch(locks.acquire('a', { wait: 500, signal: leaving.signal }));
    const next = watch(locks.acquire('a', { wait: 10_000 }));
    leaving.abort('enough');
    await clock.advance(500);
    provider.asks[0]?.fail(new LockCapacityError('pool exhausted'));
    await clock.advance(0);
    expect(next.state).toBe('pending');
    provider.asks[1]?.fail(new LockCapacityError('pool exhausted'));
    await clock.advance(0);
    expect(next.error).toBeInstanceOf(LockCapacityError);
  });

  it('leaves no timer if it is refused while queued', async () => {
    provider.onRelease = () => 'lost';
    const caller = watch(locks.acquire('a', { wait: Infinity }));
    queued();
    provider.asks[0]?.fail(new LockCapacityError('pool exhausted'));
    await clock.advance(0);
    expect(caller.error).toBeInstanceOf(LockCapacityError);
    expect(clock.pendingTimers).toBe(0);
  });
});

describe('a process with constant demand on a polled backend', () => {
  it('polls at each release for 50 ms, then leaves others the same amount of time', async () => {
    const provider = ScriptedProvider.obliging({ fair: false });
    const { locks, clock } = await startManager({ provider, random: { ...systemRandom(), fraction: () => 1 } });
    const callers = Array.from({ length: 12 }, () => watch(locks.acquire('a', { wait: Infinity })));
    const askedAt: number[] = [];
    const grantAnyway = provider.onAcquire;
    provider.onAcquire = (request, grant) => (askedAt.push(clock.now()), grantAnyway?.(request, grant));
    for (const caller of callers) {
      while (caller.value === undefined) await clock.advance(1);
      await clock.advance(10);
      await caller.value.release();
    }
    const pauses = askedAt.slice(1).map((at, index) => at - (askedAt[index] ?? 0));
    // Each caller holds for 10 ms. After six releases in a row, the other processes have 50 ms.
    expect(pauses.filter((pause) => pause > 50)).toHaveLength(1);
    expect(Math.max(...pauses)).toBeLessThan(70);
    expect(Math.min(...pauses)).toBeLessThan(12);
  });
});

describe('a caller whose wait is over', () => {
  it('is not busy during an outage, even if a hundred others make a single attempt', async () => {
    provider.onAcquire = () => Promise.reject(new LockUnavailableError('down'));
    const patient = watch(locks.acquire('a', { wait: Infinity }));
    const trying: ReturnType<typeof watch>[] = [];
    for (let caller = 0; caller < 100; caller += 1) {
      trying.push(watch(locks.acquire('a', { wait: 0 })));
      await clock.advance(caller % 7);
    }
    await clock.advance(1_000);
    for (const { error } of trying) expect(error).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(patient.state).toBe('pending');
    expect(provider.order.filter((call) => call === 'acquire a').length).toBeLessThan(10);
  });

  it('is busy behind a request that was queued long before', async () => {
    watch(locks.acquire('a', { wait: Infinity }));
    queued();
    await clock.advance(60_000);
    const short = watch(locks.acquire('a', { wait: 200 }));
    await clock.advance(200);
    expect(short.error).toBeInstanceOf(LockBusyError);
    expect(provider.order).toEqual(['acquire a']);
  });

  it('gets the error of the resource that its request waits for, and is busy once the request waits for the lock', async () => {
    const exhausted = new LockCapacityError('All connections are in use.', { key: 'a' });
    watch(locks.acquire('a', { wait: Infinity }));
    const first = watch(locks.acquire('a', { wait: 200 }));
    provider.asks[0]?.input.waits(exhausted);
    const trying = watch(locks.acquire('a', { wait: 0 }));
    await clock.advance(200);
    expect([first.error, trying.error]).toEqual([exhausted, exhausted]);
    const second = watch(locks.acquire('a', { wait: 200 }));
    provider.asks[0]?.input.waits();
    await clock.advance(200);
    expect(second.error).toBeInstanceOf(LockBusyError);
    expect(provider.order).toEqual(['acquire a']);
  });

  it('is busy while its own process holds the key, even if the backend is unreachable', async () => {
    watch(locks.acquire('a'));
    provider.asks[0]?.grant();
    await clock.advance(0);
    provider.onRenew = () => Promise.resolve('unknown');
    provider.context.emit({ type: 'unavailable', cause: new Error('down') });
    const waiting = watch(locks.acquire('a', { wait: 200 }));
    expect(await locks.tryAcquire('a')).toBeNull();
    await clock.advance(200);
    expect(waiting.error).toBeInstanceOf(LockBusyError);
    expect(provider.order.filter((call) => call === 'acquire a')).toHaveLength(1);
  });

  it('never has an infinite wait, even if its timer fires after the maximum timer delay', async () => {
    const setTimer = clock.setTimer.bind(clock);
    clock.setTimer = (callback, delay) => setTimer(callback, Math.min(delay, 2 ** 31 - 1));
    const waiting = watch(locks.acquire('a', { wait: Infinity }));
    queued();
    const timers = clock.pendingTimers;
    clock.block(2 ** 31);
    await clock.advance(60_000);
    expect([waiting.state, clock.pendingTimers]).toEqual(['pending', timers]);
  });
});
