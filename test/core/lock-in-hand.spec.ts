import { LockBusyError, LockLostError } from '../../lib/api/errors.js';
import type { Lock } from '../../lib/api/lock.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { BACKENDS, deferred, startManager, watch } from './manager-rig.js';

describe.each(BACKENDS)('a lock that is around a call, and not in its hand (%s backend)', (_, provide) => {
  const started = () => startManager({ provider: provide(new MemoryStore()) });

  it('is waited for, as by a stranger that a queue has started in this context', async () => {
    const { locks, clock } = await started();
    const gate = deferred();
    const order: string[] = [];
    let stranger: Promise<unknown> = Promise.resolve();
    const running = locks.withLock('a', async () => {
      stranger = locks.withLock('a', () => order.push('stranger'));
      await gate.promise;
      order.push('holder');
    });
    await clock.advance(1_000);
    expect(order).toEqual([]);
    gate.resolve();
    await running;
    await clock.advance(100);
    await stranger;
    expect(order).toEqual(['holder', 'stranger']);
  });

  it('is named by the error of a call that waits for itself, and by a warning when that begins', async () => {
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
    // It is warned of once, and each end is logged. A call that does not wait may ask whether its caller holds the key.
    await lock.surround(() => expect(locks.tryAcquire('a')).resolves.toBeNull());
    const again = lock.surround(() => watch(locks.acquire('a', { wait: '2s' })));
    await clock.advance(2_000);
    const ends = [nested, again].map(({ error }) => (error as LockBusyError).message);
    expect(log.slice(1)).toEqual(ends);
  });

  it.each([{ mode: 'shared' }, { limit: 2 }] as const)('is no obstacle beside %j', async (kind) => {
    const { locks, log } = await started();
    await locks.withLock('a', () => locks.withLock('a', () => undefined, kind), kind);
    expect(log).toEqual([]);
  });

  it('is warned of again for another key', async () => {
    const { locks, log } = await started();
    await locks.withLock(['a', 'b'], async () => {
      for (const key of ['a', 'b', 'b']) await expect(locks.tryAcquire(key)).resolves.toBeNull();
    });
    expect(log.filter((line) => line.includes('its own holder'))).toHaveLength(2);
  });

  it('is not entered if it was released while the call waited for another key', async () => {
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

  it('is not blamed once it has ended', async () => {
    const { locks, clock } = await started();
    const outer = await locks.acquire('a');
    const nested = watch(outer.run(() => locks.detached(() => locks.acquire('a', { wait: 100 }))));
    await clock.advance(100);
    expect(String(nested.error)).not.toContain('its own holder');
  });

  it('runs nothing after its release', async () => {
    const { locks } = await started();
    const lock = await locks.acquire('a');
    await lock.release();
    let runs = 0;
    const call = (): unknown => lock.run(() => (runs += 1));
    expect(call).toThrow(/"a" .*released/);
    expect(runs).toBe(0);
  });

  it('is entered under lock.run, also after an await and under other locks', async () => {
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

  it('is entered by the call that names it, and not by others beside that', async () => {
    const { locks, clock } = await started();
    await locks.withLock('a', async (lock) => {
      await locks.withLock('a', (inner) => expect(inner.holder).toBe(lock.holder), { within: lock });
      const beside = watch(locks.withLock('a', () => undefined, { wait: 10 }));
      await clock.advance(10);
      expect(beside.error).toBeInstanceOf(LockBusyError);
    });
  });

  it('is entered by its name outside of its context, where acquire() gave it', async () => {
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

  it('is refused as "within" where it cannot be entered', async () => {
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

it('is entered by its context where the module says so', async () => {
  const { locks } = await startManager({ defaults: { reentrant: true } });
  await locks.withLock('a', async (lock) => {
    await locks.withLock('a', (inner) => expect(inner.holder).toBe(lock.holder));
  });
});

it('does not count as another key of a caller that waits for it', async () => {
  const { locks, clock } = await startManager();
  const lock = await locks.acquirePlanned(locks.plan({}), 'a');
  const stranger = watch(lock.surround(() => locks.acquire('a')));
  const next = watch(locks.acquire('a'));
  await clock.advance(0);
  await lock.release();
  await clock.advance(0);
  // One queue has both, so the one that came first is first.
  expect([stranger.state, next.state]).toEqual(['fulfilled', 'pending']);
});
