import { LockUnavailableError } from '../../lib/api/errors.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { FakeClock } from '../../lib/testing/index.js';
import { granted, RELEASE, request, until } from '../redis/seam.js';
import { pass, type Quorum, startLocks, startQuorum, startRedlock, wiresTo } from './quorum.js';

// Defects reproduced in redlock 4, redlock 5 and their forks, which must not occur here.
describe('defects of other Redlock libraries', () => {
  let quorum: Quorum;
  beforeAll(async () => {
    quorum = await startQuorum(3);
  });
  beforeEach(() => quorum.flush());
  afterAll(() => quorum.stop());

  it('redlock 5: releasing an expired lock takes 2 s and throws; ours returns immediately', async () => {
    const { backend } = await startRedlock(quorum);
    const grant = granted(await backend.acquire(request('order')));
    await quorum.expire('order');
    await until(async () => (await quorum.votes('order')) === 0, 'the lease is over');
    await Promise.all(quorum.admins.map((admin) => admin.config('RESETSTAT')));
    expect(await backend.release(grant, RELEASE)).toBe('lost');
    // A majority has answered, and no node is called again.
    await until(
      async () => (await quorum.calls(0)) + (await quorum.calls(1)) + (await quorum.calls(2)) === 3,
      'all nodes were called',
    );
    await backend.close();
    for (const node of [0, 1, 2]) expect(await quorum.calls(node)).toBe(1);
  });

  it('redlock 5 (#296): after a wait, a lock is returned already expired; ours has its whole lease', async () => {
    const time = new FakeClock();
    const [ann, bob] = [await startLocks(quorum), await startLocks(quorum, time)];
    await ann.acquire('order', { lease: '10m' });
    const acquired = bob.acquire('order', { lease: '20s', wait: '1m' });
    await pass(quorum, time, 25_000);
    await quorum.expire('order');
    await pass(quorum, time, 1_000);
    const lock = await acquired;
    // The caller has waited for longer than a lease.
    expect(lock.remaining()).toBeGreaterThan(18_000);
    await lock.release();
  });

  it('redlock 5: votes won in one try count against their owner in the next; ours are released in between', async () => {
    const name = new RedlockKeyLayout('lock').lockOf('order');
    await quorum.admins[0]!.set(name, 'x'.repeat(60));
    await quorum.admins[1]!.set(name, 'x'.repeat(60), 'PX', 300);
    const { backend } = await startRedlock(quorum);
    // A vote of its own would last for ten minutes.
    const answer = await backend.acquire(request('order', { lease: 600_000 }));
    expect(granted(answer).fencingToken).toBeGreaterThan(0n);
  });

  it('redlock 5: lost replies leave a lock that blocks its own process; ours can be acquired again', async () => {
    const { wires, nodes } = await wiresTo(quorum);
    const { backend } = await startRedlock({ nodes, commandTimeout: '1s' });
    await backend.acquire(request('warm'));
    for (const wire of wires) wire.loseReplies();
    // Unreleased votes would last for ten minutes.
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
      'the lock is acquired again',
    );
    await Promise.all(wires.map((wire) => wire.close()));
  });
});
