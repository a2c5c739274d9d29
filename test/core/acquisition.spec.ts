import type { LockEventName } from '../../lib/api/lock-events.js';
import type { FakeClock } from '../../lib/testing/fake-clock.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import { LockCapacityError, LockConfigError, LockBusyError, LockUnavailableError } from '../../lib/api/errors.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { deferred, BACKENDS, startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

describe('a failing backend', () => {
  it.each([
    [
      new Error('OOM command not allowed'),
      'the backend failed with "OOM command not allowed"; check its status and log.',
    ],
    [
      new LockUnavailableError('Redis refuses it (OOM); check the server.'),
      'Redis refuses it (OOM); check the server.',
    ],
    [new AggregateError([]), 'the backend did not respond; check that it is up and reachable.'],
    ['down', 'the backend did not respond; check that it is up and reachable.'],
  ])('has its error quoted in the error the caller gets: %s', async (cause, words) => {
    const provider = new ScriptedProvider();
    provider.onAcquire = () => {
      throw cause;
    };
    const { locks, clock } = await startManager({ provider });
    const waiting = watch(locks.acquire('a', { wait: 0 }));
    await clock.advance(1_000);
    expect(waiting.error).toBeInstanceOf(LockUnavailableError);
    expect(waiting.error).toMatchObject({
      message: `Lock "a" (provider "main") could not be acquired: ${words}`,
      cause,
    });
  });
});

describe.each(BACKENDS)('waiting (%s backend)', (_, provide) => {
  let locks: LockManager;
  let clock: FakeClock;
  let table: MemoryStore;
  beforeEach(async () => {
    ({ locks, clock, table } = await started());
  });

  async function started() {
    const table = new MemoryStore();
    return { ...(await startManager({ provider: provide(table) })), table };
  }

  it('rejects as busy exactly when the wait is over', async () => {
    await locks.acquire('a');
    const waiting = watch(locks.acquire('a', { wait: 200 }));
    await clock.advance(199);
    expect(waiting.state).toBe('pending');
    await clock.advance(1);
    expect(waiting.error).toBeInstanceOf(LockBusyError);
    expect(locks.admin.waiting()).toEqual([]);
  });

  it('rejects a single attempt as busy if there is a queue, even if the lock is released meanwhile', async () => {
    const lock = await locks.acquire('a');
    const waiting = watch(locks.acquire('a'));
    await clock.advance(10);
    void lock.release();
    expect(await locks.tryAcquire('a')).toBeNull();
    await clock.advance(10);
    expect(waiting.state).toBe('fulfilled');
  });

  it('never sends a request if the signal is already aborted', async () => {
    await expect(locks.acquire('a', { signal: AbortSignal.abort('no') })).rejects.toBe('no');
    await expect(locks.acquire(['a', 'b'], { signal: AbortSignal.abort('no') })).rejects.toBe('no');
    expect(table.size).toBe(0);
  });

  it('waits indefinitely with an infinite wait', async () => {
    const lock = await locks.acquire('a');
    const waiting = watch(locks.acquire('a', { wait: Infinity }));
    await clock.advance(120_000);
    expect(waiting.state).toBe('pending');
    await lock.release();
    await clock.advance(10);
    expect(waiting.state).toBe('fulfilled');
  });

  it('refuses a caller when the queue is full', async () => {
    const provider = provide(new MemoryStore());
    const { locks, clock } = await startManager({ provider });
    await locks.acquire('a');
    const waiting = Array.from({ length: 10_000 }, () => watch(locks.acquire('a')));
    await expect(locks.acquire('a')).rejects.toBeInstanceOf(LockCapacityError);
    await expect(locks.acquire('b')).resolves.toBeDefined();
    await clock.advance(5_000);
    expect(waiting.every(({ error }) => error instanceof LockBusyError)).toBe(true);
  });
});

describe('a slow, misbehaving or silent backend', () => {
  let provider: ScriptedProvider;
  let locks: LockManager;
  let clock: FakeClock;
  let names: () => LockEventName[];
  let log: string[];
  beforeEach(async () => {
    provider = new ScriptedProvider();
    ({ locks, clock, names, log } = await startManager({ provider }));
  });

  it('gets time to respond to a single attempt, rather than being reported as busy', async () => {
    const trying = watch(locks.tryAcquire('a'));
    await clock.advance(900);
    expect(trying.state).toBe('pending');
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect(trying.value?.isHeld()).toBe(true);
  });

  it('is unavailable, not busy, if it never responds, and its possible grant is released', async () => {
    const trying = watch(locks.tryAcquire('a'));
    await clock.advance(2_000);
    expect(trying.error).toBeInstanceOf(LockUnavailableError);
    expect(String(trying.error)).toContain('did not respond; check that it is up and reachable.');
    expect(provider.asks[0]?.input.signal.aborted).toBe(true);
    expect(provider.releases).toHaveLength(1);
    expect(provider.releases[0]?.input.id).toBe(provider.asks[0]?.input.id);
    expect(log).toEqual(['Lock provider "main" is not responding']);
  });

  it('has its grant released again if the grant arrives after the timeout', async () => {
    const trying = watch(locks.tryAcquire('a'));
    await clock.advance(2_000);
    provider.releases[0]?.answer('lost');
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect(trying.state).toBe('rejected');
    expect(provider.releases).toHaveLength(2);
    expect(locks.admin.held()).toEqual([]);
  });

  it('gets retries under the same id while the caller waits', async () => {
    const waiting = watch(locks.acquire('a'));
    provider.asks[0]?.fail(new LockUnavailableError('no connection'));
    await clock.advance(50);
    provider.asks[1]?.fail(new TypeError('a bug'));
    await clock.advance(100);
    provider.asks[2]?.grant();
    await clock.advance(0);
    expect(waiting.state).toBe('fulfilled');
    expect(new Set(provider.asks.map(({ input }) => input.id)).size).toBe(1);
    expect(names()).toEqual(['unavailable', 'acquired']);
  });

  it.each([
    ['a caller that has waited', 2_000],
    ['a caller that has just arrived', 0],
  ])('gets one request per key for all its waiters, which are served in order; the last is %s', async (_, last) => {
    const provider = new ScriptedProvider();
    provider.onRelease = () => 'released';
    // Uses the full backoff each time, so that the pauses are deterministic.
    const random = { ...systemRandom(), fraction: () => 1 };
    const { locks, clock } = await startManager({ provider, random });
    let isDown = true;
    const asked: string[] = [];
    provider.onAcquire = ({ key, id }, grant) => {
      if (isDown) throw new LockUnavailableError('the server is loading');
      asked.push(`${key} ${id}`);
      return grant();
    };
    const served: number[] = [];
    let comers = 0;
    const come = (key: string) => {
      const comer = (comers += 1);
      void locks.withLock(key, () => void served.push(comer), { wait: Infinity });
    };
    for (const key of ['a', 'a', 'b', 'a', 'a']) {
      come(key);
      await clock.advance(650);
    }
    if (last > 0) come('a');
    await clock.advance(last);
    isDown = false;
    if (last === 0) come('a');
    await clock.advance(1_000);
    expect(served.filter((comer) => comer !== 3)).toEqual([1, 2, 4, 5, 6]);
    // At most one request per key at a time, each under its own id.
    expect(asked.filter((ask) => ask.startsWith('a'))).toHaveLength(5);
    expect(new Set(asked).size).toBe(6);
  });

  it('is unavailable if it fails for the whole wait', async () => {
    const cause = new Error('refused');
    provider.onAcquire = () => {
      throw cause;
    };
    const waiting = watch(locks.acquire('a', { wait: 300 }));
    const trying = watch(locks.tryAcquire('b'));
    await clock.advance(0);
    expect(trying.error).toMatchObject({ code: 'LOCK_UNAVAILABLE', cause, key: 'b', provider: 'main' });
    await clock.advance(301);
    expect(waiting.error).toMatchObject({ code: 'LOCK_UNAVAILABLE', cause });
    expect(provider.releases.map(({ input }) => input.key)).toEqual(['b', 'a']);
    expect(locks.admin.waiting()).toEqual([]);
  });

  it.each([
    ['refused', new LockConfigError('refused')],
    ['pool exhausted', new LockCapacityError('pool exhausted')],
  ])('fails the call immediately with an error that names the cause: %s', async (_, error) => {
    const waiting = watch(locks.acquire('a'));
    provider.asks[0]?.fail(error);
    await clock.advance(0);
    expect(waiting.error).toBe(error);
    expect(provider.asks).toHaveLength(1);
    expect(provider.releases).toHaveLength(1);
  });

  it('fails the call with an error that names the cause even after the wait is over', async () => {
    const waiting = watch(locks.acquire('a', { wait: 5_000 }));
    await clock.advance(5_000);
    const error = new LockCapacityError('pool exhausted');
    provider.asks[0]?.fail(error);
    await clock.advance(0);
    expect(waiting.error).toBe(error);
  });

  it('gets a retry under a new id if its grant has expired on arrival', async () => {
    const waiting = watch(locks.acquire('a', { lease: 1_000 }));
    provider.asks[0]?.grant({ validUntil: clock.now() });
    await clock.advance(50);
    expect(waiting.state).toBe('pending');
    expect(provider.releases[0]?.input.id).toBe(provider.asks[0]?.input.id);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(waiting.state).toBe('fulfilled');
    expect(provider.asks[1]?.input.id).not.toBe(provider.asks[0]?.input.id);
    expect(names()).toEqual(['acquired']);
  });

  it('gets a retry for an expired grant even if the queue is full', async () => {
    const waiting = watch(locks.acquire('a'));
    for (let other = 1; other < 10_000; other++) watch(locks.acquire('a', { wait: Infinity }));
    provider.asks[0]?.grant({ validUntil: clock.now() });
    await clock.advance(50);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(waiting.value?.isHeld()).toBe(true);
  });

  it('gets its full response time for each of several keys', async () => {
    const waiting = watch(locks.acquire(['a', 'b'], { wait: 0 }));
    await clock.advance(900);
    provider.asks[0]?.grant();
    await clock.advance(500);
    expect(provider.asks[1]?.input.signal.aborted).toBe(false);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(waiting.state).toBe('fulfilled');
  });

  it('does not delay a caller beyond its wait with grants that have expired', async () => {
    provider.onAcquire = (_, grant) => ({ ...grant(), validUntil: clock.now() });
    const waiting = watch(locks.acquire('a', { wait: 500 }));
    await clock.advance(600);
    expect(waiting.error).toBeInstanceOf(LockUnavailableError);
    expect(waiting.error).toMatchObject({ sent: true });
    expect(String(waiting.error)).toContain('had already ended when it arrived');
    expect(provider.releases).toHaveLength(provider.order.filter((call) => call === 'acquire a').length);
    expect(locks.admin.waiting()).toEqual([]);
  });

  it('was sent a command if its grant expired on arrival, even if the next request never leaves', async () => {
    provider.onAcquire = (_, grant) => {
      provider.onAcquire = () => Promise.reject(new LockUnavailableError('down', { sent: false }));
      return { ...grant(), validUntil: clock.now() };
    };
    const waiting = watch(locks.acquire('a', { wait: 500 }));
    await clock.advance(600);
    expect(String(waiting.error)).toContain('down');
    expect(waiting.error).toMatchObject({ code: 'LOCK_UNAVAILABLE', sent: true });
  });

  it('does not make a holder of a caller whose grant it revoked before the grant arrived', async () => {
    const waiting = watch(locks.acquire('a'));
    const [ask] = provider.asks;
    ask?.grant();
    provider.revoke(ask?.input.id ?? '');
    await clock.advance(0);
    expect(waiting.state).toBe('pending');
    expect(provider.releases).toHaveLength(1);
  });

  it('has its grant accepted just after the wait is over if the caller is still there', async () => {
    const waiting = watch(locks.acquire('a', { wait: 2_000 }));
    await clock.advance(2_000);
    expect(provider.asks[0]?.input.signal.aborted).toBe(false);
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect(waiting.value?.isHeld()).toBe(true);
  });

  it('has a grant that crosses an abort released immediately', async () => {
    const controller = new AbortController();
    const waiting = watch(locks.acquire('a', { signal: controller.signal }));
    const [ask] = provider.asks;
    ask?.grant();
    controller.abort('too late');
    await clock.advance(0);
    expect(waiting.error).toBe('too late');
    // The first release was sent with the abort, and may have overtaken the request.
    expect(provider.order).toEqual(['acquire a', 'release a', 'release a']);
    expect(new Set(provider.releases.map(({ input }) => input.id))).toEqual(new Set([ask?.input.id]));
    expect(locks.admin.held()).toEqual([]);
  });

  it('has a possible grant released on abort, and a grant that arrives later released again', async () => {
    const controller = new AbortController();
    const waiting = ['late', 'never'].map((key) => watch(locks.acquire(key, { signal: controller.signal })));
    controller.abort('enough');
    await clock.advance(500);
    expect(waiting.map(({ error }) => error)).toEqual(['enough', 'enough']);
    expect(provider.releases.map(({ input }) => input.key)).toEqual(['late', 'never']);
    for (const release of provider.releases) release.answer('lost');
    provider.asks[0]?.grant();
    await clock.advance(1_000);
    expect(provider.releases.map(({ input }) => input.key)).toEqual(['late', 'never', 'late']);
  });

  it('delays neither the abort of a caller past its wait nor that of a caller between two requests', async () => {
    const controller = new AbortController();
    const waiting = watch(locks.acquire('a', { wait: 1_000, signal: controller.signal }));
    const pausing = watch(locks.acquire('b', { signal: controller.signal }));
    provider.asks[1]?.fail(new Error('no'));
    await clock.advance(1_000);
    provider.asks[2]?.fail(new Error('no'));
    await clock.advance(0);
    controller.abort('enough');
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect([waiting.error, pausing.error]).toEqual(['enough', 'enough']);
    expect(new Set(provider.releases.map(({ input }) => input.key))).toEqual(new Set(['a', 'b']));
    // The last release follows the grant.
    expect(provider.releases.at(-1)?.input.key).toBe('a');
    expect(locks.admin.held()).toEqual([]);
  });

  it('may report busy early, which ends the wait', async () => {
    const waiting = watch(locks.acquire('a'));
    provider.asks[0]?.answer('busy');
    await clock.advance(0);
    expect(waiting.error).toBeInstanceOf(LockBusyError);
    expect(provider.releases).toHaveLength(0);
  });

  it('gets no extra response time once it has queued the caller', async () => {
    const waiting = watch(locks.acquire('a', { wait: 100 }));
    const [ask] = provider.asks;
    for (let twice = 0; twice < 2; twice += 1) provider.queue(ask?.input.id ?? '');
    await clock.advance(100);
    expect(ask?.input.signal.aborted).toBe(true);
    ask?.answer('busy');
    await clock.advance(0);
    expect(waiting.error).toBeInstanceOf(LockBusyError);
    expect(names()).toEqual(['waiting', 'busy']);
  });

  it('receives the time the caller still waits', async () => {
    const waiting = watch(locks.acquire('a', { wait: 1_000 }));
    expect(provider.asks[0]?.input.wait).toBe(1_000);
    provider.asks[0]?.fail(new Error('no'));
    await clock.advance(400);
    expect(provider.asks[1]?.input.wait).toBeLessThanOrEqual(975);
    provider.asks[1]?.answer('busy');
    await clock.advance(0);
    expect(waiting.state).toBe('rejected');
  });

  it('grants to only one of two callers if the second arrives in the tick of the grant', async () => {
    const gate = deferred();
    const one = watch(locks.withLock('a', () => gate.promise));
    provider.asks[0]?.grant();
    const two = watch(locks.withLock('a', () => gate.promise));
    await clock.advance(0);
    expect([locks.admin.held().length, locks.admin.waiting().length]).toEqual([1, 1]);
    provider.onRelease = () => 'released';
    gate.resolve();
    await one.promise;
    provider.asks[1]?.grant();
    await two.promise;
    expect(locks.admin.held()).toEqual([]);
  });
});

describe('a grant that arrives too late', () => {
  async function late() {
    const provider = new ScriptedProvider();
    provider.onRelease = () => 'released';
    const rig = await startManager({ provider });
    const grantLate = () => {
      provider.asks.at(-1)?.grant({ validUntil: -1 });
    };
    return { ...rig, provider, grantLate };
  }

  it('is followed by growing pauses', async () => {
    const { locks, clock, provider } = await late();
    provider.onAcquire = (_, grant) => ({ ...grant(), validUntil: -1 });
    const caller = watch(locks.acquire('a', { wait: 30_000 }));
    await clock.advance(31_000);
    expect(caller.error).toBeInstanceOf(LockUnavailableError);
    expect(provider.order.length).toBeLessThan(150);
  });

  it('changes the holder id, and `waiting` is reported only once', async () => {
    const { locks, clock, provider, grantLate, names } = await late();
    const caller = watch(locks.acquire('a', { wait: 30_000 }));
    for (let round = 0; round < 3; round += 1) {
      provider.queue(provider.asks.at(-1)?.input.id ?? '');
      grantLate();
      await clock.advance(1_000);
    }
    expect(new Set(provider.asks.map(({ input }) => input.id)).size).toBe(4);
    provider.asks.at(-1)?.grant();
    await clock.advance(0);
    expect(names()).toEqual(['waiting', 'acquired']);
    expect(caller.state).toBe('fulfilled');
  });

  it('preserves the abort reason, even if it is null', async () => {
    const { locks, clock, grantLate } = await late();
    const controller = new AbortController();
    const caller = watch(locks.acquire('a', { wait: 30_000, signal: controller.signal }));
    grantLate();
    await clock.advance(0);
    controller.abort(null);
    await clock.advance(0);
    expect(caller).toMatchObject({ state: 'rejected', error: null });
  });
});

it('a key is never both held and waited for, even for a listener of `acquired`', async () => {
  const { locks } = await startManager();
  const seen: number[][] = [];
  locks.events.on('acquired', () => seen.push([locks.admin.held().length, locks.admin.waiting().length]));
  await locks.withLock('a', () => undefined);
  expect(seen).toEqual([[1, 0]]);
});
