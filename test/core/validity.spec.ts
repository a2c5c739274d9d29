import { setTimeout as sleep } from 'node:timers/promises';
import { type RecordedEvent, startManager, watch } from './manager-rig.js';
import type { Lock } from '../../lib/api/lock.js';
import type { LockEventName } from '../../lib/api/lock-events.js';
import type { FakeClock } from '../../lib/testing/fake-clock.js';
import { LockLostError, LockUnavailableError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { ScriptedProvider } from './scripted-provider.js';

const LEASE = 10_000;
const VALIDITY = LEASE - (LEASE * 0.01 + 2);

async function held(options = {}) {
  const provider = ScriptedProvider.obliging();
  const started = await startManager({ provider });
  const lock = await started.locks.acquire('a', { lease: LEASE, ...options });
  return { ...started, provider, lock };
}

let locks: LockManager;
let clock: FakeClock;
let names: () => LockEventName[];
let events: RecordedEvent[];
let provider: ScriptedProvider;
let lock: Lock;
beforeEach(async () => {
  ({ locks, clock, names, events, provider, lock } = await held());
});

describe('the deadline', () => {
  it('is the time of the request plus the lease, less 1 % and 2 ms', async () => {
    expect(lock.remaining()).toBe(VALIDITY);
  });

  it('ends the lock to the millisecond, whatever the timers do', async () => {
    clock.block(VALIDITY - 1);
    expect(lock.isHeld()).toBe(true);
    clock.block(1);
    expect(lock.isHeld()).toBe(false);
    expect(lock.remaining()).toBe(0);
    expect(() => lock.assertHeld()).toThrow(LockLostError);
  });

  it('aborts a signal that is first read after it', () => {
    clock.block(LEASE);
    expect(lock.signal.aborted).toBe(true);
  });

  it('aborts the signal only once if no renewal gets a response, and a later response does not bring the lock back', async () => {
    provider.onRenew = undefined;
    let aborts = 0;
    lock.signal.addEventListener('abort', () => (aborts += 1));
    await clock.advance(VALIDITY - 1);
    expect(lock.isHeld()).toBe(true);
    await clock.advance(2);
    for (const { input, answer } of provider.renewals) answer(provider.acknowledge(input));
    await clock.advance(0);
    expect(aborts).toBe(1);
    expect(lock.signal.reason).toBeInstanceOf(LockLostError);
    expect(lock.signal.reason).toMatchObject({ reason: 'expired', key: 'a', provider: 'main' });
    expect(lock.isHeld()).toBe(false);
    expect(events.filter(({ name }) => name === 'lost')).toEqual([
      { name: 'lost', event: expect.objectContaining({ key: 'a', reason: 'expired' }) as unknown },
    ]);
  });
});

describe('the watchdog', () => {
  it('renews after a third of the lease, as long as the lock is held', async () => {
    await clock.advance(5 * LEASE);
    expect(lock.isHeld()).toBe(true);
    const renewals = provider.order.filter((call) => call === 'renew a').length;
    expect(renewals).toBeGreaterThanOrEqual(14);
    expect(renewals).toBeLessThanOrEqual(16);
    await lock.release();
    const before = provider.order.length;
    await clock.advance(LEASE);
    expect(provider.order).toHaveLength(before);
    expect(clock.pendingTimers).toBe(0);
  });

  it('renews all locks due together in one tick', async () => {
    await locks.acquire(['b', 'c'], { lease: LEASE });
    const inThisTick = new Set<string>();
    const ticks: string[][] = [];
    provider.onRenew = ({ request: { key } }) => {
      if (inThisTick.size === 0) {
        queueMicrotask(() => {
          ticks.push([...inThisTick].sort());
          inThisTick.clear();
        });
      }
      inThisTick.add(key);
      return undefined;
    };
    await clock.advance(LEASE / 3);
    expect(ticks).toEqual([['a', 'b', 'c']]);
  });

  it('also renews locks that are due soon, but no others', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    for (const [key, after] of [
      ['a', 0],
      ['b', 400],
      ['c', 400],
    ] as const) {
      await clock.advance(after);
      await locks.acquire(key, { lease: LEASE });
    }
    await clock.advance(VALIDITY - (LEASE * 2) / 3 - 800 + 1);
    expect(provider.order.filter((call) => call.startsWith('renew')).sort()).toEqual(['renew a', 'renew b']);
  });

  it('does not treat a failed renewal as a loss, and retries until the deadline', async () => {
    let fails = 2;
    provider.onRenew = (renewal) => {
      fails -= 1;
      if (fails >= 0) throw new Error('no connection');
      return Promise.resolve(provider.acknowledge(renewal));
    };
    await clock.advance(LEASE);
    expect(lock.isHeld()).toBe(true);
    expect(names()).toContain('renewed');
    expect(names().filter((name) => name === 'unavailable')).toHaveLength(1);
  });

  it('ignores a response processed after the deadline, even if no timer has fired yet', async () => {
    provider.onRenew = undefined;
    await clock.advance(LEASE / 3);
    const [renewal] = provider.renewals;
    clock.block(LEASE);
    renewal?.answer({ validUntil: clock.now() + LEASE });
    await clock.advance(0);
    expect(lock.isHeld()).toBe(false);
    expect(lock.signal.reason).toMatchObject({ reason: 'expired' });
  });

  it('never renews past the deadline, and detects the loss if it wakes late', async () => {
    clock.block(LEASE);
    await clock.advance(1);
    expect(provider.order).toEqual(['acquire a', 'release a']);
    expect(lock.isHeld()).toBe(false);
  });

  it('does not wait for another lock renewed in the same tick', async () => {
    const other = await locks.acquire('other', { lease: LEASE });
    provider.onRenew = (renewal) =>
      renewal.request.key === 'other' ? new Promise(() => undefined) : Promise.resolve(provider.acknowledge(renewal));
    await clock.advance(2 * LEASE);
    expect([lock.isHeld(), other.isHeld()]).toEqual([true, false]);
  });

  it("accepts the backend's report that the lock is gone", async () => {
    provider.onRenew = () => Promise.resolve('lost');
    await clock.advance(LEASE / 2);
    expect(lock.signal.reason).toMatchObject({ reason: 'revoked' });
  });

  it('aborts immediately on a loss reported by the backend, with its cause', async () => {
    const cause = new Error('session expired');
    provider.revoke(lock.holder, cause);
    expect(lock.signal.reason).toMatchObject({ reason: 'revoked', cause });
    provider.revoke('nobody');
  });

  it('renews everything after a reconnect, before any new request', async () => {
    await locks.acquire('b');
    provider.context.emit({ type: 'unavailable', cause: new Error('gone') });
    provider.context.emit({ type: 'recovered' });
    expect(provider.order).toEqual(['acquire a', 'acquire b', 'renew a', 'renew b']);
  });

  it('sends no renewal after a release, and ignores a response that arrives after it', async () => {
    provider.onRenew = undefined;
    await clock.advance(LEASE / 2);
    expect(await lock.release()).toBe('released');
    provider.renewals[0]?.answer('lost');
    await clock.advance(LEASE);
    expect(provider.order.at(-1)).toBe('release a');
    expect(names()).toEqual(['acquired', 'released']);
  });
});

describe('extend', () => {
  it('renews immediately, and keeps the new length', async () => {
    await clock.advance(1_000);
    await lock.extend('1m');
    expect(lock.remaining()).toBe(60_000 - 602);
    expect(provider.order).toEqual(['acquire a', 'renew a']);
    await clock.advance(25_000);
    expect(provider.order.filter((call) => call === 'renew a')).toHaveLength(2);
  });

  it('applies a shorter lease when it is sent, because the backend may have accepted it even if its response is lost', async () => {
    provider.onRenew = () => Promise.reject(new Error('response lost'));
    await expect(lock.extend(1_000)).rejects.toBeInstanceOf(LockUnavailableError);
    expect(lock.isHeld()).toBe(true);
    expect(lock.remaining()).toBe(988);
    await clock.advance(988);
    expect(lock.signal.reason).toMatchObject({ reason: 'expired' });
  });

  it('never goes beyond maxHold, which ends the lock even if it was extended shortly before', async () => {
    const { lock, clock, provider } = await held({ maxHold: 45_000 });
    await clock.advance(5_000);
    let asked: number | undefined;
    provider.onRenew = (renewal) => {
      asked = renewal.lease;
      return Promise.resolve(provider.acknowledge(renewal));
    };
    await lock.extend('1h');
    expect(asked).toBe(40_000);
    await clock.advance(39_900);
    await lock.extend();
    expect(asked).toBe(40_000);
    await lock.extend('1h');
    expect(asked).toBe(40_000);
    await clock.advance(99);
    expect(lock.isHeld()).toBe(true);
    await clock.advance(1);
    expect(lock.signal.reason).toMatchObject({ reason: 'max-hold' });
  });

  it('rejects with the reason: lost, released or unavailable', async () => {
    provider.onRenew = () => Promise.resolve('unknown');
    await expect(lock.extend()).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', key: 'a' });
    provider.onRenew = () => Promise.resolve('lost');
    await expect(lock.extend()).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'revoked' });
    await expect(lock.extend(10)).rejects.toMatchObject({ code: 'LOCK_CONFIG' });
    const other = await locks.acquire('b');
    provider.onRenew = undefined;
    const extending = watch(other.extend());
    await other.release();
    provider.renewals[0]?.answer(provider.acknowledge(provider.renewals[0].input));
    await clock.advance(0);
    expect(extending.error).toMatchObject({ code: 'LOCK_LOST', reason: 'released' });
    await expect(other.extend()).rejects.toMatchObject({ reason: 'released' });
  });

  it('accepts no duration if locks last as long as their session', async () => {
    const provider = ScriptedProvider.obliging({ lease: 'session' });
    const { locks } = await startManager({ provider });
    const lock = await locks.acquire('a');
    await expect(lock.extend('1m')).rejects.toMatchObject({ code: 'LOCK_CONFIG' });
    await expect(lock.extend()).resolves.toBeUndefined();
  });
});

describe('maxHold', () => {
  it('limits the remaining time', async () => {
    const { lock } = await held({ maxHold: 1_000 });
    expect(lock.remaining()).toBe(1_000);
  });
});

describe('a suspended machine', () => {
  it('leaves the lock unverified until the next renewal completes, which is not a loss', async () => {
    provider.onRenew = undefined;
    clock.suspend(60_000);
    expect(lock.isHeld()).toBe(false);
    expect(() => lock.assertHeld()).toThrow(/could not be verified/);
    expect(() => lock.assertHeld()).toThrow(LockUnavailableError);
    expect(lock.signal.aborted).toBe(false);
    const { renewals } = provider;
    expect(renewals).toHaveLength(1);
    renewals[0]?.answer(provider.acknowledge(renewals[0].input));
    await clock.advance(0);
    expect(lock.isHeld()).toBe(true);
    expect(() => lock.assertHeld()).not.toThrow();
  });

  it('loses the lock if the next renewal reports a loss', async () => {
    provider.onRenew = () => Promise.resolve('lost');
    clock.suspend(60_000);
    expect(lock.isHeld()).toBe(false);
    await clock.advance(0);
    expect(() => lock.assertHeld()).toThrow(LockLostError);
  });

  it('is not confirmed by a renewal sent before the suspension', async () => {
    provider.onRenew = undefined;
    await clock.advance(LEASE / 3);
    clock.suspend(60_000);
    expect(lock.isHeld()).toBe(false);
    provider.renewals[0]?.answer(provider.acknowledge(provider.renewals[0].input));
    await clock.advance(0);
    expect(lock.isHeld()).toBe(false);
    provider.renewals[1]?.answer(provider.acknowledge(provider.renewals[1].input));
    await clock.advance(0);
    expect(lock.isHeld()).toBe(true);
  });

  it.each([2_000, 10])('does not trust a grant requested %i ms before the suspension', async (before) => {
    const provider = new ScriptedProvider();
    const { locks, clock } = await startManager({ provider });
    const waiting = watch(locks.acquire('a', { wait: Infinity }));
    await clock.advance(before);
    clock.suspend(60_000);
    provider.asks[0]?.grant({ validUntil: clock.now() + 20_000 });
    await clock.advance(0);
    expect(waiting.state).toBe('pending');
    expect(provider.releases).toHaveLength(1);
    await clock.advance(50);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(waiting.value?.isHeld()).toBe(true);
  });

  it('does not trust a grant after half a day of waiting and a suspension of seconds, which clock drift cannot explain', async () => {
    const provider = new ScriptedProvider();
    const { locks, clock } = await startManager({ provider });
    const waiting = watch(locks.acquire('a', { wait: Infinity }));
    provider.queue(provider.asks[0]?.input.id ?? '');
    await clock.advance(12 * 3_600_000);
    clock.suspend(4_000);
    provider.asks[0]?.grant({ validUntil: clock.now() + 3_000 });
    await clock.advance(0);
    expect([waiting.state, provider.releases.length]).toEqual(['pending', 1]);
  });

  it('verifies the keys acquired before the suspension, ahead of the task', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    provider.onAcquire = (request, grant) => (request.key === 'a' ? grant() : undefined);
    provider.onRenew = undefined;
    const taking = watch(locks.acquire(['a', 'b'], { lease: '1m' }));
    await clock.advance(2_000);
    clock.suspend(30_000);
    provider.asks[0]?.fail(new Error('connection lost while suspended'));
    await clock.advance(50);
    // The server may have granted the first attempt before the suspension.
    provider.asks[1]?.grant();
    await clock.advance(100);
    provider.asks[2]?.grant();
    await clock.advance(0);
    expect(taking.state).toBe('pending');
    provider.renewals[0]?.answer('lost');
    await clock.advance(0);
    expect(taking.error).toMatchObject({ code: 'LOCK_LOST', key: 'a' });
    expect(locks.admin.held()).toEqual([]);
  });

  it('verifies them again if it was suspended during the verification', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    provider.onAcquire = (request, grant) => (request.key === 'a' ? grant() : undefined);
    provider.onRenew = undefined;
    const acknowledge = (index: number) => {
      const renewal = provider.renewals[index];
      renewal?.answer(provider.acknowledge(renewal.input));
    };
    const taking = watch(locks.acquire(['a', 'b'], { lease: '1m' }));
    await clock.advance(2_000);
    clock.suspend(30_000);
    provider.asks[0]?.fail(new Error('connection lost while suspended'));
    await clock.advance(50);
    // The server may have granted the first attempt before the suspension.
    provider.asks[1]?.grant();
    await clock.advance(100);
    provider.asks[2]?.grant();
    await clock.advance(0);
    clock.suspend(30_000);
    for (const renewal of [0, 1]) {
      expect([provider.renewals.length, taking.state]).toEqual([renewal + 1, 'pending']);
      acknowledge(renewal);
      await clock.advance(0);
    }
    // The other key was granted before the machine was suspended again.
    acknowledge(2);
    await clock.advance(0);
    expect(taking.value?.isHeld()).toBe(true);
  });

  it('is not detected for less than two seconds, nor when the wall clock jumps', async () => {
    clock.suspend(1_900);
    clock.stepWallTime(60_000);
    expect(lock.isHeld()).toBe(true);
  });
});

describe('a lock on the real clock', () => {
  it('is lost at the first check after a blocked event loop, even if the timer is late', async () => {
    const locks = new LockManager({ providers: { main: new MemoryLockProvider() } });
    await locks.start();
    const lock = await locks.acquire('a', { lease: 100 });
    const { signal } = lock;
    const until = performance.now() + 300;
    while (performance.now() < until);
    // A function that is passed a signal checks it first.
    await expect(sleep(10_000, undefined, { signal })).rejects.toMatchObject({ name: 'AbortError' });
    expect(signal.aborted).toBe(true);
    expect(() => lock.assertHeld()).toThrow(LockLostError);
    expect(lock.isHeld()).toBe(false);
    expect(await lock.release()).toBe('lost');
    await locks.stop();
  });

  it('does not depend on the wall clock', async () => {
    const locks = new LockManager({ providers: { main: new MemoryLockProvider() } });
    await locks.start();
    const lock = await locks.acquire('a', { lease: 5_000 });
    const { now } = Date;
    let token = lock.fencingToken ?? 0n;
    try {
      for (const step of [60_000, -60_000]) {
        Date.now = () => now() + step;
        expect(lock.isHeld()).toBe(true);
        expect(lock.remaining()).toBeGreaterThan(4_000);
        const other = await locks.acquire('b');
        expect(other.fencingToken).toBeGreaterThan(token);
        token = other.fencingToken ?? 0n;
        expect(await other.release()).toBe('released');
      }
    } finally {
      Date.now = now;
    }
    expect(await lock.release()).toBe('released');
    await locks.stop();
  });
});

describe('a shortened lease', () => {
  it('is renewed again before its end if the renewal got no response', async () => {
    const { lock, clock, provider } = await held({ lease: 30_000 });
    await clock.advance(1_000);
    const acknowledge = provider.onRenew;
    provider.onRenew = () => Promise.resolve('unknown');
    await expect(lock.extend('3s')).rejects.toBeInstanceOf(LockUnavailableError);
    provider.onRenew = acknowledge;
    await clock.advance(10_000);
    expect(lock.isHeld()).toBe(true);
  });
});
