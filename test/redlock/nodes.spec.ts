import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { FakeClock } from '../../lib/testing/index.js';
import { granted, RELEASE, request, until } from '../redis/seam.js';
import { type Quorum, startLocks, startQuorum, startRedlock, wiresTo } from './quorum.js';
import type { TestGrant } from '../direct-backend.js';

const ONE_ATTEMPT = { wait: 0 };

describe('five nodes of which some fail', () => {
  let quorum: Quorum;
  const frozen = new Set<number>();
  const freeze = (index: number) => {
    frozen.add(index);
    quorum.servers[index]!.signal('SIGSTOP');
  };
  beforeAll(async () => {
    quorum = await startQuorum(5);
  });
  beforeEach(() => quorum.flush());
  afterEach(() => {
    for (const index of frozen) quorum.servers[index]!.signal('SIGCONT');
    frozen.clear();
  });
  afterAll(() => quorum.stop());

  it('Q1: one that is killed and one that hangs delay no caller', async () => {
    // Its time stands still, so an acquire that waits until an answer is late never ends.
    const { backend } = await startRedlock(quorum, { clock: new FakeClock() });
    await backend.acquire(request('warm'));
    await quorum.servers[0]!.crash();
    freeze(1);
    for (let index = 0; index < 15; index += 1) {
      const grant = granted(await backend.acquire(request(`order:${index}`)));
      expect(await backend.release(grant, RELEASE)).toBe('released');
    }
  });

  it('Q1: three that hang are LockUnavailableError within the timeout of a node, never busy', async () => {
    const { backend } = await startRedlock({ ...quorum, commandTimeout: '1s' });
    await backend.acquire(request('warm'));
    for (const index of [0, 1, 2]) freeze(index);
    const startedAt = performance.now();
    const attempt = request('order', { ...ONE_ATTEMPT, lease: 600_000 });
    await expect(backend.acquire(attempt)).rejects.toBeInstanceOf(LockUnavailableError);
    // The commandTimeout is 1 s. A tenth of the lease is a minute.
    expect(performance.now() - startedAt).toBeLessThan(10_000);
    // The votes of the others are released.
    const left = async () => {
      const name = new RedlockKeyLayout('lock').lockOf('order');
      return (await Promise.all([3, 4].map((index) => quorum.admins[index]!.exists(name)))).every(
        (count) => count === 0,
      );
    };
    await until(left, 'the minority is cleaned up');
  });

  it('Q1: the loss of the majority is reported once, its return is reported, and the lock works again', async () => {
    const { wires, nodes } = await wiresTo(quorum);
    const { backend, events } = await startRedlock({ nodes });
    const reported = () => events.map(({ type }) => type).filter((type) => type !== 'waiting');
    wires[0]!.refuse();
    wires[1]!.refuse();
    const grant = granted(await backend.acquire(request('order')));
    expect(reported()).toEqual([]);
    wires[2]!.refuse();
    await until(() => reported().length === 1, 'the loss is reported');
    await expect(backend.acquire(request('other', ONE_ATTEMPT))).rejects.toBeInstanceOf(LockUnavailableError);
    expect(await backend.renew(grant, 30_000)).toBe('unknown');
    wires[2]!.admit();
    await until(() => reported().length === 2, 'the return is reported');
    expect(reported()).toEqual(['unavailable', 'recovered']);
    expect(await backend.renew(grant, 30_000)).toMatchObject({ validUntil: expect.any(Number) as number });
    await Promise.all(wires.map((wire) => wire.close()));
  });

  it('Q2: callers that split the votes do not block each other: one wins, and then the others', async () => {
    const callers = await Promise.all([1, 2, 3].map(() => startLocks(quorum)));
    for (let round = 0; round < 10; round += 1) {
      await Promise.all(
        callers.map(async (locks) => {
          const lock = await locks.acquire(`order:${round}`, { wait: '1m' });
          await lock.release();
        }),
      );
    }
    await until(async () => (await quorum.votes('order:9')) === 0, 'nothing is left');
  }, 90_000);

  it('Q2: two votes of each caller and one of a third party: no caller wins until it ends, then one of them does', async () => {
    const name = new RedlockKeyLayout('lock').lockOf('order');
    const [ann, bob] = [await startRedlock(quorum), await startRedlock(quorum)];
    // Three of five are taken for a while by votes that nobody releases.
    await Promise.all(quorum.admins.slice(0, 3).map((admin) => admin.set(name, 'x'.repeat(60), 'PX', 200)));
    const answers = [ann, bob].map(async ({ backend }) => {
      const grant = granted(await backend.acquire(request('order')));
      await backend.release(grant, RELEASE);
      return grant.fencingToken!;
    });
    const [one, other] = await Promise.all(answers);
    expect(one).not.toBe(other);
  });

  it('Q3: a node that restarts empty within a lease forgets its vote, so a second holder is possible (documented)', async () => {
    const [ann, bob] = [await startRedlock(quorum), await startRedlock(quorum)];
    // Two did not vote: three are a bare majority.
    const name = new RedlockKeyLayout('lock').lockOf('order');
    for (const admin of quorum.admins.slice(3)) await admin.set(name, 'x'.repeat(60));
    const first = granted(await ann.backend.acquire(request('order', { lease: 600_000 })));
    for (const admin of quorum.admins.slice(3)) await admin.del(name);
    await quorum.servers[0]!.crash();
    // Until a grant has reached it again, it does not count for tokens, and no second holder is possible.
    expect(await bob.backend.acquire(request('order', ONE_ATTEMPT)).catch(() => 'busy')).toBe('busy');
    let probes = 0;
    await until(async () => {
      await bob.backend.acquire(request(`probe:${(probes += 1)}`, ONE_ATTEMPT)).catch(() => 'busy');
      return (await quorum.admins[0]!.exists('lock:redlock').catch(() => 0)) === 1;
    }, 'it knows tokens again');
    await until(async () => {
      const answer = await bob.backend.acquire(request('order', ONE_ATTEMPT)).catch(() => 'busy' as const);
      return answer !== 'busy' && answer.fencingToken! > first.fencingToken!;
    }, 'the second holder, with a larger token');
  });

  it('Q3: with delayedRestart a node that has just started does not vote, so there is none', async () => {
    const [ann, bob] = await Promise.all([1, 2].map(() => startRedlock(quorum)));
    await until(() => ann!.backend.acquire(request('probe', ONE_ATTEMPT)).then(() => true), 'ann is up');
    const guarded = await startRedlock({ ...quorum, maxLease: '1d', delayedRestart: true });
    // All five have started within the last day.
    await expect(guarded.backend.acquire(request('order', ONE_ATTEMPT))).rejects.toMatchObject({
      cause: { message: expect.stringContaining('maxLease') as string },
    });
    expect(await bob!.backend.acquire(request('order', ONE_ATTEMPT))).not.toBe('busy');
  });

  it('Q3: with delayedRestart a node votes again when it is older than maxLease', async () => {
    const maxLease = 6_000;
    const guarded = await startRedlock({ ...quorum, maxLease, delayedRestart: true });
    await Promise.all(quorum.servers.slice(0, 3).map((server) => server.crash()));
    await until(() => guarded.events.some(({ type }) => type === 'recovered'), 'the majority is back');
    await expect(guarded.backend.acquire(request('order', { ...ONE_ATTEMPT, lease: maxLease }))).rejects.toBeInstanceOf(
      LockUnavailableError,
    );
    await until(
      () =>
        guarded.backend.acquire(request('order', { ...ONE_ATTEMPT, lease: maxLease })).then(
          (answer) => answer !== 'busy',
          () => false,
        ),
      'they vote again',
      60_000,
    );
  }, 90_000);

  it('Q4: votes that come after a tenth of the lease are no votes, and are released', async () => {
    const { wires, nodes } = await wiresTo(quorum);
    const { backend } = await startRedlock({ nodes, commandTimeout: '10m' });
    await backend.acquire(request('warm'));
    for (const wire of wires.slice(0, 3)) wire.holdReplies();
    const slow = backend.acquire(request('order', { ...ONE_ATTEMPT, lease: 1_000 }));
    await expect(slow).rejects.toBeInstanceOf(LockUnavailableError);
    for (const wire of wires) wire.passReplies();
    await until(async () => (await quorum.votes('order')) === 0, 'all votes are released');
    await Promise.all(wires.map((wire) => wire.close()));
  });

  it('Q5: tokens grow when every grant is by another majority, and a node has lost its data in between', async () => {
    const { wires, nodes } = await wiresTo(quorum);
    const backends = await Promise.all([1, 2].map(() => startRedlock({ nodes })));
    const tokens: bigint[] = [];
    const take = async (round: number, holds = backends[round % 2]!) => {
      let grant: TestGrant | undefined;
      await until(async () => {
        const answer = await holds.backend.acquire(request('order', ONE_ATTEMPT)).catch(() => 'busy' as const);
        if (answer !== 'busy') grant = answer;
        return grant !== undefined;
      }, 'a majority grants');
      tokens.push(grant!.fencingToken!);
      await until(async () => (await holds.backend.release(grant!, RELEASE)) !== 'unknown', 'it is released');
    };
    // All five know tokens from here on; before, two that are down and one that is new leave no majority that remembers.
    await take(0);
    await until(async () => (await quorum.admins[0]!.exists('lock:redlock')) === 1, 'the first grant has reached all');
    for (let round = 0; round < 12; round += 1) {
      const down = [wires[round % 5]!, wires[(round * 2 + 1) % 5]!];
      for (const wire of down) wire.refuse();
      await take(round);
      for (const wire of down) wire.admit();
      if (round === 6) await quorum.admins[0]!.flushall();
      // Reaches the one that was flushed again, which until then does not count for tokens: once its vote comes before the release.
      await until(async () => {
        await take(round + 1);
        return (await quorum.admins[0]!.exists('lock:redlock')) === 1;
      }, 'it knows tokens again');
    }
    const sorted = [...tokens].sort((a, b) => (a < b ? -1 : 1));
    expect(tokens).toEqual(sorted);
    expect(new Set(tokens).size).toBe(tokens.length);
    await Promise.all(wires.map((wire) => wire.close()));
  });

  it('refuses nodes that are one server', async () => {
    const [first, second] = quorum.nodes;
    await expect(startRedlock({ nodes: [first!, second!, first!] })).rejects.toThrow(LockConfigError);
    await expect(startRedlock({ nodes: [first!, second!, first!] })).rejects.toThrow('the same server');
  });

  it('the diagnostics warn of an even number and of restarts without AOF', async () => {
    const { backend } = await startRedlock({ nodes: quorum.nodes.slice(0, 4) });
    const messages = (await backend.diagnose()).map(({ message }) => message);
    expect(messages[0]).toContain('odd number');
    expect(messages.filter((message) => message.includes('delayedRestart'))).toHaveLength(4);
  });

  it('leases, minHold and extensions beyond maxLease are refused, and the lock stays as it is', async () => {
    const locks = await startLocks({ ...quorum, maxLease: '20s' });
    for (const options of [{ lease: '21s' }, { minHold: '21s' }] as const) {
      const asked = locks.acquire('order', options);
      await expect(asked).rejects.toBeInstanceOf(LockConfigError);
      await expect(asked).rejects.toThrow('exceeds "maxLease" of lock provider "redlock" (20000 ms)');
    }
    // The built-in lease of 30 s gives way.
    const lock = await locks.acquire('order');
    const extended = lock.extend('21s');
    await expect(extended).rejects.toBeInstanceOf(LockConfigError);
    await expect(extended).rejects.toThrow('"lease" is 21000 ms');
    expect(lock.isHeld()).toBe(true);
    await lock.extend('20s');
    expect(await quorum.admins[0]!.pttl(new RedlockKeyLayout('lock').lockOf('order'))).toBeLessThanOrEqual(20_000);
    expect(await lock.release()).toBe('released');
  });

  it('SCRIPT FLUSH during a hold does no harm', async () => {
    const { backend } = await startRedlock(quorum);
    const grant = granted(await backend.acquire(request('order')));
    await Promise.all(quorum.admins.map((admin) => admin.script('FLUSH')));
    expect(await backend.renew(grant, 30_000)).toMatchObject({ validUntil: expect.any(Number) as number });
    expect(await backend.release(grant, RELEASE)).toBe('released');
  });
});
