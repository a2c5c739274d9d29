import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { LockEventPublisher } from '../../lib/core/events/publisher.js';
import { deferred, startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';
import { LockLostError, LockUnavailableError } from '../../lib/api/errors.js';
import type { Lock } from '../../lib/api/lock.js';
import type { LockOptions } from '../../lib/api/lock-options.js';

const OF_A = { key: 'a', provider: 'main', mode: 'exclusive', method: null, template: null };

describe('events', () => {
  it('report each step in the life of a lock exactly once, with durations and the fencing token', async () => {
    const { locks, clock, events } = await startManager();
    const first = await locks.acquire('a', { lease: 3_000 });
    const second = watch(locks.acquire('a'));
    await clock.advance(1_200);
    await first.release();
    await clock.advance(0);
    await second.value?.release();
    expect(events).toEqual([
      { name: 'acquired', event: { ...OF_A, waited: 0, fencingToken: first.fencingToken } },
      { name: 'waiting', event: OF_A },
      { name: 'renewed', event: { ...OF_A, remaining: 2_968 } },
      { name: 'acquired', event: { ...OF_A, waited: 1_200, fencingToken: second.value?.fencingToken } },
      { name: 'released', event: { ...OF_A, held: 1_200 } },
      { name: 'released', event: { ...OF_A, held: 0 } },
    ]);
  });

  it('have durations in whole ms, as does LockBusyError', async () => {
    const { locks, clock, events } = await startManager();
    await clock.advance(0.3);
    const first = await locks.acquire('a', { lease: 3_000 });
    await clock.advance(0.4);
    const busy = watch(locks.acquire('a', { wait: 1_200.6 }));
    const second = watch(locks.acquire('a'));
    await clock.advance(1_300.5);
    await first.release();
    await clock.advance(0.9);
    await second.value?.release();
    expect(busy.error).toMatchObject({ waited: 1_201 });
    const times = events.flatMap(({ event }) =>
      Object.values(event as object).filter((value): value is number => typeof value === 'number'),
    );
    expect(times).toHaveLength(6);
    expect(times.filter((time) => !Number.isInteger(time))).toEqual([]);
  });

  it('report busy and lost locks, and pending releases', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock, events } = await startManager({ provider });
    provider.onAcquire = ({ key }, grant) => (key === 'busy' ? 'busy' : grant());
    await locks.tryAcquire('busy');
    const lost = await locks.acquire('a');
    provider.revoke(lost.holder);
    const pending = await locks.acquire('a');
    provider.onRelease = () => 'unknown';
    await pending.release();
    expect(events.filter(({ name }) => name !== 'acquired')).toEqual([
      { name: 'busy', event: { ...OF_A, key: 'busy', waited: 0, heldBy: null } },
      { name: 'lost', event: { ...OF_A, held: 0, reason: 'revoked' } },
      { name: 'release-pending', event: OF_A },
    ]);
    provider.onRelease = () => 'released';
    await clock.advance(100);
  });

  it('report a forced release, and the loss of the lock that was held', async () => {
    const { locks, clock, events } = await startManager();
    locks.events.on('force-released', (event) => events.push({ name: 'force-released', event }));
    await locks.acquire('a');
    await locks.acquire('a b', { minHold: 5_000 }).then((lock) => lock.release());
    for (const key of ['a', 'a b', 'free']) await locks.admin.forceRelease(key);
    await clock.advance(0);
    const forced = (key: string, wasLocked: boolean) => ({
      name: 'force-released',
      event: { key, provider: 'main', wasLocked },
    });
    const lost = { name: 'lost', event: { ...OF_A, held: 0, reason: 'revoked' } };
    const reported = events.filter(({ name }) => name === 'force-released' || name === 'lost');
    expect(reported).toHaveLength(4);
    expect(reported).toEqual(
      expect.arrayContaining([forced('a', true), lost, forced('a b', true), forced('free', false)]),
    );
  });

  it('report no forced release that failed', async () => {
    const forceRelease = () => Promise.reject(new Error('not answered'));
    const provider = Object.assign(new ScriptedProvider({ forceRelease: true }), { forceRelease });
    const { locks, events } = await startManager({ provider });
    locks.events.on('force-released', (event) => events.push({ name: 'force-released', event }));
    await expect(locks.admin.forceRelease('a')).rejects.toThrow('not answered');
    expect(events).toEqual([]);
  });

  it('report an outage only once until the backend responds again, as does the log', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, names, log } = await startManager({ provider });
    const down = () => {
      provider.context.emit({ type: 'unavailable', cause: new Error('gone') });
    };
    down();
    down();
    expect(names()).toEqual(['unavailable']);
    const lock = await locks.acquire('a');
    down();
    expect(names()).toEqual(['unavailable', 'acquired', 'unavailable']);
    provider.context.emit({ type: 'recovered' });
    down();
    await lock.release();
    const [silent, back] = ['is not responding: gone', 'is responding again.'].map(
      (what) => `Lock provider "main" ${what}`,
    );
    expect(log).toEqual([silent, back, silent, back, silent]);
  });

  it('outages are logged at most three times a minute, and a lasting one is logged afterward', async () => {
    const provider = ScriptedProvider.obliging();
    const { log, clock, names } = await startManager({ provider });
    const down = () => {
      provider.context.emit({ type: 'unavailable', cause: new Error('one master of three') });
    };
    const outages = () => log.filter((line) => line.includes('is not responding')).length;
    for (let turn = 0; turn < 100; turn += 1) {
      down();
      provider.context.emit({ type: 'recovered' });
    }
    expect(names()).toHaveLength(100);
    expect([outages(), log.length]).toEqual([3, 6]);
    down();
    await clock.advance(59_999);
    down();
    expect(outages()).toBe(3);
    await clock.advance(1);
    down();
    down();
    expect(outages()).toBe(4);
    provider.context.emit({ type: 'recovered' });
    expect(log).toHaveLength(8);
  });

  it('are not repeated for a nested entry', async () => {
    const { locks, names } = await startManager();
    await locks.withLock('a', (within) => locks.withLock('a', () => undefined, { within }));
    expect(names()).toEqual(['acquired', 'released']);
  });

  it('never contain a holder id, nor do messages and the log', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock, events, log } = await startManager({ provider });
    const secrets: string[] = [];
    const errors: unknown[] = [];
    for (const fault of ['lost', 'unknown'] as const) {
      const lock = await locks.acquire('a', { lease: 1_000, maxHold: 60_000 });
      secrets.push(lock.holder);
      provider.onRenew = () => Promise.resolve(fault);
      provider.onRelease = () => fault;
      errors.push(await lock.extend().catch((error: unknown) => error));
      await clock.advance(2_000);
      await lock.release();
    }
    provider.onAcquire = (request) => {
      secrets.push(request.id);
      throw new Error('refused');
    };
    const failing = watch(locks.acquire('a', { wait: 0 }));
    await clock.advance(2_000);
    errors.push(failing.error);
    const said = JSON.stringify([events, log, errors.map(String), errors], (_, value: unknown) =>
      typeof value === 'bigint' ? String(value) : value,
    );
    expect(secrets).toHaveLength(3);
    for (const secret of secrets) expect(said).not.toContain(secret);
  });

  it('tolerate failures of sync and async listeners, and log them', async () => {
    const { locks, clock, log } = await startManager();
    const unhandled: unknown[] = [];
    const note = (reason: unknown) => unhandled.push(reason);
    process.on('unhandledRejection', note);
    try {
      locks.events.on('acquired', () => {
        throw new Error('sync');
      });
      // eslint-disable-next-line @typescript-eslint/no-misused-promises -- what users write
      locks.events.on('acquired', () => Promise.reject(new Error('async')));
      const seen = deferred<string>();
      locks.events.once('acquired', ({ key }) => {
        seen.resolve(key);
      });
      await locks.withLock('a', () => undefined);
      expect(await seen.promise).toBe('a');
      await clock.advance(0);
      expect(unhandled).toEqual([]);
      expect(log).toEqual(['A lock event listener failed: Error: sync', 'A lock event listener failed: Error: async']);
    } finally {
      process.off('unhandledRejection', note);
    }
  });

  it('tolerate listeners that fail with a value that has no text', async () => {
    const { locks, clock, log } = await startManager();
    const fail = () => {
      throw Object.create(null);
    };
    locks.events.once('acquired', fail);
    // eslint-disable-next-line @typescript-eslint/no-misused-promises -- what users write
    locks.events.once('released', () => Promise.resolve().then(fail));
    const first = watch(locks.withLock('a', () => 'ran'));
    await clock.advance(0);
    const second = watch(locks.tryAcquire('a'));
    await clock.advance(0);
    expect([first.value, second.value?.isHeld()]).toEqual(['ran', true]);
    expect(log).toEqual(Array(2).fill('A lock event listener failed: an unprintable value'));
  });
});

const EVENT = { key: 'a', provider: 'main', mode: 'exclusive', method: null, template: null } as const;

describe('the event publisher', () => {
  it('builds no event without listeners', () => {
    const publisher = new LockEventPublisher(() => undefined);
    let built = 0;
    const describe = () => {
      built += 1;
      return EVENT;
    };
    const publish = () => {
      if (publisher.has('waiting')) publisher.publish('waiting', describe());
    };
    publish();
    expect(built).toBe(0);
    const listener = () => undefined;
    publisher.on('waiting', listener);
    publish();
    publisher.off('waiting', listener);
    publish();
    expect(built).toBe(1);
  });

  it('calls an `on` listener every time and a `once` listener only once', () => {
    const publisher = new LockEventPublisher(() => undefined);
    const calls: string[] = [];
    publisher
      .on('waiting', ({ key }) => calls.push(`on ${key}`))
      .once('waiting', ({ key }) => calls.push(`once ${key}`));
    for (let twice = 0; twice < 2; twice += 1) publisher.publish('waiting', EVENT);
    expect(calls).toEqual(['on a', 'once a', 'on a']);
  });
});

const HOLD = 'tracing:nestjs-distributed-lock:hold:start';
const LEASE = 10_000;
const VALIDITY = LEASE - (LEASE * 0.01 + 2);

/** Starts a manager whose provider grants every request until `silent()` is called. */
async function started(fair = true) {
  const provider = ScriptedProvider.obliging({ fair });
  const silent = () => {
    provider.onAcquire = undefined;
  };
  return { ...(await startManager({ provider })), provider, silent };
}

describe('a listener that acts in the middle of a call', () => {
  it('leaves the caller in a queue that a stop knows of', async () => {
    const { locks, clock, silent } = await started();
    const [lapsing, other] = [await locks.acquire('a', { lease: LEASE }), await locks.acquire('b')];
    lapsing.signal.addEventListener('abort', () => void other.release());
    clock.block(VALIDITY);
    silent();
    // Detects the loss. The listener releases the other lock, so this call leaves two queues empty.
    const waiting = watch(locks.acquire('a', { wait: Infinity }));
    expect(locks.admin.waiting().map(({ key }) => key)).toEqual(['a']);
    const stopped = locks.stop();
    await clock.advance(20_000);
    await stopped;
    expect(waiting.error).toBeInstanceOf(LockUnavailableError);
  });

  it('leaves the caller in such a queue even on a tracing channel', async () => {
    const { locks, silent } = await started();
    const other = await locks.acquire('b');
    await (await locks.acquire('a')).release();
    silent();
    // Two queues become empty after the call has started and before it waits, so that the first queue is removed.
    const onStart = () => void other.release();
    subscribe('tracing:nestjs-distributed-lock:acquire:start', onStart);
    watch(locks.acquire('a', { wait: Infinity }));
    unsubscribe('tracing:nestjs-distributed-lock:acquire:start', onStart);
    expect(locks.admin.waiting().map(({ key }) => key)).toEqual(['a']);
  });

  it('leaves no timer of a caller that it aborts', async () => {
    const { locks, clock, silent } = await started();
    silent();
    const controller = new AbortController();
    watch(locks.acquire('a', { wait: 60_000 }));
    locks.events.on('waiting', () => controller.abort(new Error('not wanted')));
    const sent = watch(locks.acquire('a', { wait: 24 * 3_600_000, signal: controller.signal }));
    await clock.advance(0);
    expect((sent.error as Error).message).toBe('not wanted');
    const { pendingTimers } = clock;
    await clock.advance(61_500);
    // The timers of the one-day wait are gone, and those of the first caller remain.
    expect(clock.pendingTimers).toBeLessThan(pendingTimers);
    await clock.advance(120_000);
    expect(clock.pendingTimers).toBe(0);
  });

  it('removes a caller whose signal it aborts before the caller is queued', async () => {
    const { locks, clock, silent } = await started();
    const controller = new AbortController();
    const lapsing = await locks.acquire('a', { lease: LEASE });
    lapsing.signal.addEventListener('abort', () => controller.abort(new Error('with the lock')));
    clock.block(VALIDITY);
    silent();
    const waiting = watch(locks.acquire('a', { wait: 60_000, signal: controller.signal }));
    await clock.advance(0);
    expect((waiting.error as Error).message).toBe('with the lock');
    expect(locks.admin.waiting()).toEqual([]);
  });

  it('keeps further readers out if it revokes the lock of the first', async () => {
    const { locks, clock, provider, silent } = await started();
    silent();
    locks.events.once('acquired', () => provider.revoke(provider.asks[0]?.input.id ?? ''));
    const held: boolean[] = [];
    const read = (lock: Lock) => void held.push(lock.isHeld());
    const [first, second] = [1, 2].map(() => watch(locks.withLock('a', read, { mode: 'shared' })));
    await clock.advance(0);
    provider.asks[0]?.grant();
    await clock.advance(0);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(first?.error).toBeInstanceOf(LockLostError);
    expect(second?.state).toBe('fulfilled');
    expect(held).toEqual([true]);
  });

  it('prevents the retry of a failed request if it aborts the last caller', async () => {
    const { locks, clock, provider, silent } = await started();
    const controller = new AbortController();
    locks.events.on('unavailable', () => controller.abort(new Error('not during an outage')));
    silent();
    const waiting = watch(locks.acquire('a', { wait: Infinity, signal: controller.signal }));
    await clock.advance(0);
    provider.asks[0]?.fail(new LockUnavailableError('down'));
    await clock.advance(0);
    expect((waiting.error as Error).message).toBe('not during an outage');
    await clock.advance(120_000);
    expect(provider.order).toEqual(['acquire a', 'release a']);
    expect(clock.pendingTimers).toBe(0);
  });
});

describe('a reentrant acquire while the outer lock is being released', () => {
  const options: LockOptions = { maxHold: 5_000 };

  it("keeps the outer lock's maxHold and trace", async () => {
    const { locks, clock } = await started();
    let traces = 0;
    const count = () => {
      traces += 1;
    };
    subscribe(HOLD, count);
    try {
      const outer = await locks.acquire('a', options);
      await clock.advance(4_000);
      const entering = outer.run(() => locks.acquire('a', options));
      void outer.release();
      const inner = await entering;
      expect(traces).toBe(1);
      expect(inner.remaining()).toBeLessThanOrEqual(1_000);
      await clock.advance(1_000);
      expect(inner.isHeld()).toBe(false);
    } finally {
      unsubscribe(HOLD, count);
    }
  });
});

describe('a process without competitors on a polled backend', () => {
  it('does not pause for others after minutes without a queue', async () => {
    const { locks, clock, provider } = await started(false);
    for (let minute = 0; minute < 3; minute += 1) {
      await (await locks.acquire('a')).release();
      await clock.advance(60_000);
    }
    const held = await locks.acquire('a');
    const next = watch(locks.acquire('a'));
    await held.release();
    await clock.advance(0);
    expect(next.value?.isHeld()).toBe(true);
    expect(provider.order.slice(-2)).toEqual(['release a', 'acquire a']);
  });
});

it('a logger that throws does not stop renewals', async () => {
  const provider = ScriptedProvider.obliging();
  const fail = () => {
    throw new Error('the logger');
  };
  const { locks, clock } = await startManager({ provider, logger: { debug: fail, warn: fail, error: fail } });
  await locks.acquire('a', { lease: LEASE, maxHold: 4_000 });
  const kept = await locks.acquire('b', { lease: LEASE });
  await clock.advance(60_000);
  expect(kept.isHeld()).toBe(true);
  await kept.release();
  await locks.stop();
});
