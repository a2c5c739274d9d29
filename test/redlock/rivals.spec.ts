import { afterAll, beforeAll, beforeEach, jest } from '@jest/globals';
import { LockUnavailableError } from '../../lib/lock/errors.js';
import { QuorumKeyLayout } from '../../lib/providers/redis/quorum/quorum-key-layout.js';
import { granted, RELEASE, request, until } from '../redis/seam.js';
import { type Quorum, startLocks, startQuorum, startRedlock, wiresTo } from './quorum.js';

// Defects that were reproduced in redlock 4, redlock 5 and their forks; none may be ours.
describe('what other libraries of this algorithm get wrong', () => {
  let quorum: Quorum;
  beforeAll(async () => {
    quorum = await startQuorum(3);
  });
  beforeEach(() => quorum.flush());
  afterAll(() => quorum.stop());

  it('redlock 5: releasing an expired lock takes 2 s and throws; ours answers at once', async () => {
    const { provider } = await startRedlock(quorum);
    const grant = granted(await provider.acquire(request('order', { lease: 200 })));
    await until(async () => (await quorum.votes('order')) === 0, 'the lease is over');
    const startedAt = performance.now();
    expect(await provider.release(grant, RELEASE)).toBe('lost');
    expect(performance.now() - startedAt).toBeLessThan(1_500);
  });

  it('redlock 5 (#296): a lock is returned already expired after a wait; ours has its whole lease', async () => {
    const [ann, bob] = [await startLocks(quorum), await startLocks(quorum)];
    await ann.acquire('order', { lease: 1_200, renew: false });
    const lock = await bob.acquire('order', { lease: 5_000, wait: '5s' });
    // It has waited for more than a second.
    expect(lock.remaining()).toBeGreaterThan(4_000);
    await lock.release();
  });

  it('redlock 5: votes won in one try vote against their owner in the next; ours are given back in between', async () => {
    const name = new QuorumKeyLayout('lock').lockOf('order');
    await quorum.admins[0]!.set(name, 'x'.repeat(60));
    await quorum.admins[1]!.set(name, 'x'.repeat(60), 'PX', 300);
    const { provider } = await startRedlock(quorum);
    expect(granted(await provider.acquire(request('order', { wait: 3_000 }))).fencingToken).toBeGreaterThan(0n);
  });

  it('redlock 5: a client clock that is stepped back by 60 s prolongs the lock; ours ends in its time', async () => {
    const locks = await startLocks(quorum);
    const lock = await locks.acquire('order', { lease: 300, renew: false });
    const now = Date.now;
    const spy = jest.spyOn(Date, 'now').mockImplementation(() => now() - 60_000);
    try {
      expect(lock.remaining()).toBeLessThan(300);
      await new Promise((resolve) => setTimeout(resolve, 320));
      expect(lock.isHeld()).toBe(false);
    } finally {
      spy.mockRestore();
    }
  });

  it('redlock 5: after a blocked event loop the signal does not know of the loss; ours does', async () => {
    const locks = await startLocks(quorum);
    const lock = await locks.acquire('order', { lease: 200 });
    for (const until = performance.now() + 300; performance.now() < until;);
    expect(lock.signal.aborted).toBe(true);
  });

  it('redlock 5: replies that are lost leave a lock that blocks its own process; ours can be taken again', async () => {
    const { wires, nodes } = await wiresTo(quorum);
    const { provider } = await startRedlock({ nodes });
    await provider.acquire(request('warm'));
    for (const wire of wires) wire.loseReplies();
    await expect(provider.acquire(request('order', { wait: 0, lease: 1_000 }))).rejects.toBeInstanceOf(
      LockUnavailableError,
    );
    for (const wire of wires) {
      wire.cut();
      wire.passReplies();
    }
    await until(
      () =>
        provider.acquire(request('order', { wait: 0 })).then(
          (answer) => answer !== 'busy',
          () => false,
        ),
      'it is taken again',
    );
    await Promise.all(wires.map((wire) => wire.close()));
  });

  it('redis-semaphore: while Redis is dead every renewal is an unhandled rejection, and the lock counts as held for ever', async () => {
    const rejections: unknown[] = [];
    const onRejection = (reason: unknown) => rejections.push(reason);
    process.on('unhandledRejection', onRejection);
    const { wires, nodes } = await wiresTo(quorum);
    const locks = await startLocks({ nodes });
    const lock = await locks.acquire('order', { lease: 600 });
    for (const wire of wires) wire.refuse();
    await until(() => lock.signal.aborted, 'the loss is signalled', 2_000);
    expect(lock.isHeld()).toBe(false);
    await lock.release();
    await locks.stop();
    expect(rejections).toEqual([]);
    process.off('unhandledRejection', onRejection);
    await Promise.all(wires.map((wire) => wire.close()));
  });

  it('redlock-universal: a short lease is renewed 15 000 times a second', async () => {
    const locks = await startLocks(quorum);
    await (await locks.acquire('warm')).release();
    await Promise.all(quorum.admins.map((admin) => admin.config('RESETSTAT')));
    const lock = await locks.acquire('order', { lease: 900 });
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(lock.isHeld()).toBe(true);
    await lock.release();
    const stats = await quorum.admins[0]!.info('commandstats');
    const calls = [...stats.matchAll(/cmdstat_(?:eval|evalsha|ping):calls=(\d+)/g)];
    expect(calls.reduce((sum, [, count]) => sum + Number(count), 0)).toBeLessThan(20);
  });
});
