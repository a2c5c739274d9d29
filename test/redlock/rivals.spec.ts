import { jest } from '@jest/globals';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { systemClock } from '../../lib/core/toolkit/clock.js';
import { FakeClock } from '../../lib/testing/index.js';
import { granted, RELEASE, request, until } from '../redis/seam.js';
import { pass, type Quorum, startLocks, startQuorum, startRedlock, wiresTo } from './quorum.js';

// Defects that were reproduced in redlock 4, redlock 5 and their forks; none may be ours.
describe('what other libraries of this algorithm get wrong', () => {
  let quorum: Quorum;
  beforeAll(async () => {
    quorum = await startQuorum(3);
  });
  beforeEach(() => quorum.flush());
  afterAll(() => quorum.stop());

  it('redlock 5: releasing an expired lock takes 2 s and throws; ours answers immediately', async () => {
    const { backend } = await startRedlock(quorum);
    const grant = granted(await backend.acquire(request('order')));
    await quorum.expire('order');
    await until(async () => (await quorum.votes('order')) === 0, 'the lease is over');
    await Promise.all(quorum.admins.map((admin) => admin.config('RESETSTAT')));
    expect(await backend.release(grant, RELEASE)).toBe('lost');
    // A majority has answered, and nobody is asked again.
    await until(
      async () => (await quorum.calls(0)) + (await quorum.calls(1)) + (await quorum.calls(2)) === 3,
      'all know',
    );
    await backend.close();
    for (const node of [0, 1, 2]) expect(await quorum.calls(node)).toBe(1);
  });

  it('redlock 5 (#296): a lock is returned already expired after a wait; ours has its whole lease', async () => {
    const time = new FakeClock();
    const [ann, bob] = [await startLocks(quorum), await startLocks(quorum, time)];
    await ann.acquire('order', { lease: '10m' });
    const acquired = bob.acquire('order', { lease: '20s', wait: '1m' });
    await pass(quorum, time, 25_000);
    await quorum.expire('order');
    await pass(quorum, time, 1_000);
    const lock = await acquired;
    // It has waited for longer than a lease.
    expect(lock.remaining()).toBeGreaterThan(18_000);
    await lock.release();
  });

  it('redlock 5: votes won in one try vote against their owner in the next; ours are released in between', async () => {
    const name = new RedlockKeyLayout('lock').lockOf('order');
    await quorum.admins[0]!.set(name, 'x'.repeat(60));
    await quorum.admins[1]!.set(name, 'x'.repeat(60), 'PX', 300);
    const { backend } = await startRedlock(quorum);
    // A vote of its own would last for ten minutes.
    const answer = await backend.acquire(request('order', { lease: 600_000 }));
    expect(granted(answer).fencingToken).toBeGreaterThan(0n);
  });

  it('redlock 5: a client clock that is stepped back by 60 s extends the lock; ours ends in its time', async () => {
    let passed = 0;
    const locks = await startLocks(quorum, { ...systemClock, now: () => systemClock.now() + passed });
    const lock = await locks.acquire('order', { lease: 30_000 });
    const wallTime = Date.now;
    const spy = jest.spyOn(Date, 'now').mockImplementation(() => wallTime() - 60_000);
    try {
      expect(lock.remaining()).toBeLessThan(30_000);
      // A lease passes.
      passed = 30_000;
      expect(lock.isHeld()).toBe(false);
    } finally {
      spy.mockRestore();
    }
  });

  it('redlock 5: after a blocked event loop the signal does not report the loss; ours does', async () => {
    const time = new FakeClock();
    const locks = await startLocks(quorum, time);
    const lock = await locks.acquire('order');
    expect(lock.signal.aborted).toBe(false);
    // A lease passes, and no timer fires.
    time.block(30_000);
    expect(lock.signal.aborted).toBe(true);
  });

  it('redlock 5: replies that are lost leave a lock that blocks its own process; ours can be taken again', async () => {
    const { wires, nodes } = await wiresTo(quorum);
    const { backend } = await startRedlock({ nodes, commandTimeout: '1s' });
    await backend.acquire(request('warm'));
    for (const wire of wires) wire.loseReplies();
    // Votes that are not released would last for ten minutes.
    await expect(backend.acquire(request('order', { wait: 0, lease: 600_000 }))).rejects.toBeInstanceOf(
      LockUnavailableError,
    );
    for (const wire of wires) {
      wire.cut();
      wire.passReplies();
    }
    await until(
      () =>
        backend.acquire(request('order', { wait: 0 })).then(
          (answer) => answer !== 'busy',
          () => false,
        ),
      'it is taken again',
    );
    await Promise.all(wires.map((wire) => wire.close()));
  });

  it('redis-semaphore: while Redis is dead every renewal is an unhandled rejection, and the lock counts as held permanently', async () => {
    const rejections: unknown[] = [];
    const onRejection = (reason: unknown) => rejections.push(reason);
    process.on('unhandledRejection', onRejection);
    const { wires, nodes } = await wiresTo(quorum);
    const time = new FakeClock();
    const locks = await startLocks({ nodes }, time);
    const lock = await locks.acquire('order');
    let isDown = false;
    locks.events.on('unavailable', () => (isDown = true));
    for (const wire of wires) wire.refuse();
    await until(() => isDown, 'it is noticed');
    const { signal } = lock;
    // The lease, with a renewal in each second of its last two thirds.
    for (let second = 0; second < 30; second += 1) {
      expect(signal.aborted).toBe(false);
      await time.advance(1_000);
    }
    expect(signal.aborted).toBe(true);
    expect(lock.isHeld()).toBe(false);
    await lock.release();
    // It waits for the release, because a renewal that was not answered may have been executed.
    const stopped = locks.stop();
    await time.advance(2_000);
    await stopped;
    expect(rejections).toEqual([]);
    process.off('unhandledRejection', onRejection);
    await Promise.all(wires.map((wire) => wire.close()));
  });

  it('redlock-universal: a short lease is renewed 15 000 times a second', async () => {
    const time = new FakeClock();
    const locks = await startLocks(quorum, time);
    await (await locks.acquire('warm')).release();
    await Promise.all(quorum.admins.map((admin) => admin.config('RESETSTAT')));
    const lock = await locks.acquire('order');
    // Two leases.
    await pass(quorum, time, 60_000);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
    expect(await quorum.calls(0)).toBeLessThan(20);
  });
});
