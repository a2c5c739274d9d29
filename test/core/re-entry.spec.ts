import { AsyncLocalStorage } from 'node:async_hooks';
import { LockDeadlockError, LockLostError, LockBusyError, LockUnavailableError } from '../../lib/api/errors.js';
import type { Lock } from '../../lib/api/lock.js';
import { deferred, BACKENDS, startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';

describe.each(BACKENDS)('a reentrant lock (%s backend)', (_, provide) => {
  const started = () => startManager({ provider: provide(new MemoryStore()), defaults: { reentrant: true } });

  it('joins the lock around the task, and is released with the last entry', async () => {
    const { locks, names } = await started();
    await locks.withLock('a', async (outer) => {
      await locks.withLock('a', (inner) => {
        expect(inner.holder).toBe(outer.holder);
        expect(inner.fencingToken).toBe(outer.fencingToken);
        expect(locks.admin.held()).toMatchObject([{ key: 'a', entries: 2 }]);
        expect(locks.current()).toBe(inner);
      });
      const joined = await locks.acquire('a');
      expect(await joined.release()).toBe('nested');
      expect(joined.isHeld()).toBe(false);
      expect(outer.isHeld()).toBe(true);
      expect(locks.current('a')).toBe(outer);
      expect(locks.current('b')).toBeUndefined();
    });
    expect(locks.admin.held()).toEqual([]);
    expect(locks.current()).toBeUndefined();
    expect(names()).toEqual(['acquired', 'released']);
  });

  it('is current in lock.run(), but not after acquire()', async () => {
    const { locks, clock } = await started();
    const lock = await locks.acquire('a');
    const busy = watch(locks.acquire('a', { wait: 10 }));
    await clock.advance(10);
    expect(busy.error).toBeInstanceOf(LockBusyError);
    expect(String(busy.error)).toContain('lock.run()');
    await lock.run(async () => {
      const inner = await locks.acquire('a');
      expect(await inner.release()).toBe('nested');
    });
  });

  it('gets no advice about acquire() if another task of this process holds the lock', async () => {
    const { locks, clock } = await started();
    const gate = deferred();
    const running = locks.withLock('a', () => gate.promise);
    await clock.advance(0);
    const busy = watch(locks.acquire('a', { wait: 0 }));
    await clock.advance(0);
    expect(busy.error).toBeInstanceOf(LockBusyError);
    expect(String(busy.error)).toContain('This process holds it. Raise "wait"');
    expect(String(busy.error)).toContain('If the caller itself holds it');
    gate.resolve();
    await running;
  });

  it('allows shared under exclusive, and reports exclusive under shared as a deadlock', async () => {
    const { locks } = await started();
    await locks.withLock('a', () => locks.withLock('a', ({ mode }) => expect(mode).toBe('shared'), { mode: 'shared' }));
    await locks.withLock('a', () => expect(locks.acquire('a')).rejects.toBeInstanceOf(LockDeadlockError), {
      mode: 'shared',
    });
    expect(locks.admin.held()).toEqual([]);
  });

  it('is not re-entered after a loss', async () => {
    const { locks, clock } = await started();
    const running = watch(
      locks.withLock('a', async () => {
        clock.block(60_000);
        await locks.withLock('a', () => 'inside');
      }),
    );
    await clock.advance(0);
    expect(running.error).toBeInstanceOf(LockLostError);
    expect(running.error).toMatchObject({
      outcome: { status: 'rejected', reason: expect.any(LockLostError) as unknown },
    });
  });

  it('is acquired anew after an earlier release', async () => {
    const { locks } = await started();
    await locks.withLock('a', async (outer) => {
      await outer.release();
      const again = await locks.acquire('a');
      expect(again.holder).not.toBe(outer.holder);
      await again.release();
    });
  });

  it('is acquired anew after it was lost and released, even by work that outlives the lock', async () => {
    const { locks } = await started();
    let later: (() => Promise<Lock>) | undefined;
    const lost = locks.withLock('a', async (outer) => {
      later = AsyncLocalStorage.bind(() => locks.acquire('a'));
      await locks.admin.forceRelease('a');
      await expect(locks.acquire('a')).rejects.toBeInstanceOf(LockLostError);
      expect(await outer.release()).toBe('lost');
      await (await locks.acquire('a')).release();
    });
    await expect(lost).rejects.toBeInstanceOf(LockLostError);
    expect((await later?.())?.isHeld()).toBe(true);
  });

  it('stays held for an inner entry that outlives the outer one', async () => {
    const { locks } = await started();
    let inner: Lock | undefined;
    await locks.withLock('a', async () => void (inner = await locks.acquire('a')));
    expect(inner?.isHeld()).toBe(true);
    expect(await locks.tryAcquire('a')).toBeNull();
    expect(await inner?.release()).toBe('released');
  });

  it('stays held for an inner task that is not awaited, with a single warning', async () => {
    const { locks, clock, log } = await started();
    const gate = deferred();
    const inner: Promise<void>[] = [];
    for (const key of ['a', 'b']) {
      await locks.withLock(key, () => void inner.push(locks.withLock(key, () => gate.promise)));
      expect(locks.admin.held().at(-1)).toMatchObject({ key, entries: 1 });
    }
    expect(log).toEqual([expect.stringMatching(/"a".* still held .*Await nested calls/)]);
    gate.resolve();
    await Promise.all(inner);
    await clock.advance(0);
    expect(locks.admin.held()).toEqual([]);
  });

  it('causes no warning if inner tasks end in time, or if a sibling failed', async () => {
    const { locks, log } = await started();
    const gate = deferred();
    let slow: Promise<void> = Promise.resolve();
    const failing = locks.withLock(['a', 'b'], async () => {
      await locks.withLock('a', () => locks.withLock(['a', 'b', 'c'], () => undefined));
      slow = locks.withLock('a', () => gate.promise);
      await Promise.all([slow, locks.withLock('a', () => Promise.reject(new Error('failed')))]);
    });
    await expect(failing).rejects.toThrow('failed');
    gate.resolve();
    await slow;
    expect(log).toEqual([]);
  });

  it('keeps the outer maxHold', async () => {
    const { locks, clock } = await started();
    await locks.withLock(
      'a',
      async (outer) => {
        const inner = await locks.acquire('a', { maxHold: 10 });
        await clock.advance(100);
        expect([outer.isHeld(), inner.isHeld()]).toEqual([true, true]);
        await inner.release();
      },
      { maxHold: 1_000 },
    );
  });

  it('notifies every open entry of a loss, but not the closed ones', async () => {
    const { locks } = await started();
    const running = locks.withLock(
      'a',
      async (outer) => {
        const closed = await locks.acquire('a');
        expect(closed.signal.aborted).toBe(false);
        await closed.release();
        const open = await locks.acquire('a');
        expect([outer.signal.aborted, open.signal.aborted]).toEqual([false, false]);
        expect(await locks.admin.forceRelease('a')).toBe(true);
        expect([outer.signal.aborted, open.signal.aborted, closed.signal.aborted]).toEqual([true, true, false]);
        expect(await open.release()).toBe('lost');
        return 'value';
      },
      { onLost: 'ignore' },
    );
    await expect(running).resolves.toBe('value');
  });

  it('is not re-entered by a detached task or through another manager', async () => {
    const { locks } = await started();
    const other = await started();
    await locks.withLock('a', async () => {
      expect(await locks.detached(() => locks.tryAcquire('a'))).toBeNull();
      expect(other.locks.current()).toBeUndefined();
      const foreign = await other.locks.acquire('a');
      expect(other.locks.admin.held()).toMatchObject([{ entries: 1 }]);
      await foreign.release();
    });
  });

  it('logs one warning about a key out of order, and waits for it as requested', async () => {
    const { locks, log, clock } = await started();
    const other = await locks.acquire('k:a');
    const nesting = watch(locks.withLock('k:b', () => locks.withLock('k:a', () => 'done', { wait: Infinity })));
    await clock.advance(60_000);
    expect(nesting.state).toBe('pending');
    await other.release();
    await clock.advance(100);
    expect(nesting.value).toBe('done');
    await locks.withLock('k:b', async () => {
      await locks.withLock('k:a', () => undefined);
      await locks.withLock('k:c', () => undefined, { wait: Infinity });
    });
    expect(log).toHaveLength(1);
    expect(log[0]).toContain('under "k:b"');
  });
});

describe.each(BACKENDS)('a current lock that is not passed explicitly (%s backend)', (_, provide) => {
  const started = () => startManager({ provider: provide(new MemoryStore()) });

  it('is waited for, because the call may be unrelated work that a queue started in this context', async () => {
    const { locks, clock } = await started();
    const gate = deferred();
    const order: string[] = [];
    let stranger: Promise<unknown> = Promise.resolve();
    const running = locks.withLock('a', async () => {
      stranger = locks.withLock('a', () => order.push('unrelated call'));
      await gate.promise;
      order.push('holder');
    });
    await clock.advance(1_000);
    expect(order).toEqual([]);
    gate.resolve();
    await running;
    await clock.advance(100);
    await stranger;
    expect(order).toEqual(['holder', 'unrelated call']);
  });

  it('is named in the error of a call that waits for itself, and in a warning when the wait starts', async () => {
    const { locks, clock, log } = await started();
    const outer = locks.plan({}, { method: 'OrderService.pay', template: null });
    const lock = await locks.acquirePlanned(outer, 'a');
    const nested = lock.surround(() => watch(locks.acquire('a', { wait: '2s' })));
    await clock.advance(0);
    const says =
      /its own holder, OrderService\.pay.*in OrderService\.pay, run it with currentLock\(\)\.run\(\(\) => …\).*\{ within: lock \}.*lock\.run\(\).*reentrant: true.*AsyncResource\.bind/;
    expect(log).toEqual([expect.stringMatching(says)]);
    await clock.advance(2_000);
    expect(nested.error).toBeInstanceOf(LockBusyError);
    expect(String(nested.error)).toMatch(says);
    // The warning is logged only once, and each timeout is logged. A call that does not wait may check whether its
    // caller holds the key.
    await lock.surround(() => expect(locks.tryAcquire('a')).resolves.toBeNull());
    const again = lock.surround(() => watch(locks.acquire('a', { wait: '2s' })));
    await clock.advance(2_000);
    const ends = [nested, again].map(({ error }) => (error as LockBusyError).message);
    expect(log.slice(1)).toEqual(ends);
  });

  it.each([{ mode: 'shared' }, { limit: 2 }] as const)('is not reported if both entries use %j', async (kind) => {
    const { locks, log } = await started();
    await locks.withLock('a', () => locks.withLock('a', () => undefined, kind), kind);
    expect(log).toEqual([]);
  });

  it('causes another warning for another key', async () => {
    const { locks, log } = await started();
    await locks.withLock(['a', 'b'], async () => {
      for (const key of ['a', 'b', 'b']) await expect(locks.tryAcquire(key)).resolves.toBeNull();
    });
    expect(log.filter((line) => line.includes('its own holder'))).toHaveLength(2);
  });

  it('is not re-entered if it was released while the call waited for another key', async () => {
    const { locks, clock } = await started();
    const first = await locks.acquire('a');
    const within = await locks.acquire('b');
    const both = watch(locks.acquire(['a', 'b'], { within }));
    await clock.advance(10);
    await within.release();
    await first.release();
    await clock.advance(100);
    expect(both.error).toMatchObject({ code: 'LOCK_LOST', reason: 'released' });
    expect(locks.admin.held()).toEqual([]);
  });

  it('is not blamed after it has ended', async () => {
    const { locks, clock } = await started();
    const outer = await locks.acquire('a');
    const nested = watch(outer.run(() => locks.detached(() => locks.acquire('a', { wait: 100 }))));
    await clock.advance(100);
    expect(String(nested.error)).not.toContain('its own holder');
  });

  it('runs no code after its release', async () => {
    const { locks } = await started();
    const lock = await locks.acquire('a');
    await lock.release();
    let runs = 0;
    const call = (): unknown => lock.run(() => (runs += 1));
    expect(call).toThrow(/"a" .*released/);
    expect(runs).toBe(0);
  });

  it('is re-entered under lock.run(), even after an await and under other locks', async () => {
    const { locks, clock } = await started();
    const running = watch(
      locks.withLock('a', (lock) =>
        lock.run(async () => {
          await Promise.resolve();
          return locks.withLock('b', () => locks.withLock('a', ({ holder }) => holder === lock.holder));
        }),
      ),
    );
    await clock.advance(100);
    expect(running.value).toBe(true);
    expect(locks.admin.held()).toEqual([]);
  });

  it('is re-entered by the call that passes it, but not by concurrent calls', async () => {
    const { locks, clock } = await started();
    await locks.withLock('a', async (lock) => {
      await locks.withLock('a', (inner) => expect(inner.holder).toBe(lock.holder), { within: lock });
      const beside = watch(locks.withLock('a', () => undefined, { wait: 10 }));
      await clock.advance(10);
      expect(beside.error).toBeInstanceOf(LockBusyError);
    });
  });

  it('is re-entered outside its context if acquire() returned it and the call passes it', async () => {
    const { locks } = await started();
    const lock = await locks.acquire('a');
    const inner = await locks.acquire(['a', 'b'], { within: lock });
    expect(locks.admin.held()).toMatchObject([
      { key: 'a', entries: 2 },
      { key: 'b', entries: 1 },
    ]);
    expect(await inner.release()).toBe('released');
    expect(await lock.release()).toBe('released');
  });

  it('is rejected as "within" if it cannot be re-entered', async () => {
    const { locks } = await started();
    const other = await started();
    const [a, b, theirs] = [await locks.acquire('a'), await locks.acquire('b'), await other.locks.acquire('a')];
    const acquire = (within: unknown) => locks.acquire('a', { within: within as Lock });
    await expect(acquire(b)).rejects.toThrow(/"within" is the lock "b".* none of this call's keys/);
    for (const wrong of [theirs, {}, 'a'])
      await expect(acquire(wrong)).rejects.toThrow(/"within" is not a lock from this/);
    await a.release();
    await expect(acquire(a)).rejects.toBeInstanceOf(LockLostError);
    await locks.admin.forceRelease('b');
    await expect(locks.acquire('b', { within: b })).rejects.toBeInstanceOf(LockLostError);
  });
});

it.each([true, false])(
  'a lock ends like its outer task (failed: %s), even if an inner task that outlives it ends differently',
  async (failed) => {
    const provider = ScriptedProvider.obliging();
    const released: boolean[] = [];
    provider.onRelease = (_, options) => {
      released.push(options.failed);
      return 'released';
    };
    const { locks } = await startManager({ provider });
    const gate = deferred();
    let inner: Promise<void> = Promise.resolve();
    const outer = watch(
      locks.withLock('a', async (lock) => {
        inner = locks.withLock('a', () => gate.promise, { within: lock });
        if (failed) await Promise.all([inner, Promise.reject(new Error('failed'))]);
      }),
    );
    await outer.promise.catch(() => undefined);
    expect(outer.state).toBe(failed ? 'rejected' : 'fulfilled');
    if (failed) gate.resolve();
    else gate.reject(new Error('inner'));
    await inner.catch(() => undefined);
    expect(released).toEqual([failed]);
  },
);

it('a lock is re-entered after a suspension of the machine only once the backend has confirmed it', async () => {
  const provider = ScriptedProvider.obliging();
  const { locks, clock } = await startManager({ provider });
  const outer = await locks.acquire('a');
  provider.onRenew = undefined;
  clock.suspend(60_000);
  const held: boolean[] = [];
  const enter = () => watch(locks.withLock('a', (lock) => void held.push(lock.isHeld()), { within: outer }));
  const entering = enter();
  await clock.advance(0);
  expect(held).toEqual([]);
  for (const renewal of provider.renewals.splice(0)) renewal.answer('unknown');
  await clock.advance(0);
  expect(entering.error).toBeInstanceOf(LockUnavailableError);
  enter();
  await clock.advance(0);
  for (const renewal of provider.renewals) renewal.answer(provider.acknowledge(renewal.input));
  await clock.advance(0);
  expect(held).toEqual([true]);
  expect(await outer.release()).toBe('released');
});

it('a lock is re-entered through its context if the module enables that', async () => {
  const { locks } = await startManager({ defaults: { reentrant: true } });
  await locks.withLock('a', async (lock) => {
    await locks.withLock('a', (inner) => expect(inner.holder).toBe(lock.holder));
  });
});

it('a lock does not count as another key of a caller that waits for it', async () => {
  const { locks, clock } = await startManager();
  const lock = await locks.acquirePlanned(locks.plan({}), 'a');
  const stranger = watch(lock.surround(() => locks.acquire('a')));
  const next = watch(locks.acquire('a'));
  await clock.advance(0);
  await lock.release();
  await clock.advance(0);
  // Both are in one queue, so the first to arrive is served first.
  expect([stranger.state, next.state]).toEqual(['fulfilled', 'pending']);
});
