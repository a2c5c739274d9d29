import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { FakeClock } from '../../lib/testing/index.js';
import { granted, RELEASE, request, until } from '../redis/seam.js';
import { type Quorum, startLocks, startQuorum, startRedlock, wiresTo } from './quorum.js';
import type { TestGrant } from '../direct-backend.js';

const ONE_ATTEMPT = { wait: 0 };

describe('five nodes, some of which fail', () => {
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

  it('Q1: one killed and one hung node delay no caller', async () => {
    // The clock stands still, so an acquire that waits for an answer to be late never ends.
    const { backend } = await startRedlock(quorum, { clock: new FakeClock() });
    await backend.acquire(request('warm'));
    await quorum.servers[0]!.crash();
    freeze(1);
    for (let index = 0; index < 15; index += 1) {
      const grant = granted(await backend.acquire(request(`order:${index}`)));
      expect(await backend.release(grant, RELEASE)).toBe('released');
    }
  });

  it('Q1: with three hung nodes, an acquire fails with LockUnavailableError within the node timeout, never as busy', async () => {
    const clock = new FakeClock();
    const { backend } = await startRedlock({ ...quorum, commandTimeout: '1s' }, { clock });
    await backend.acquire(request('warm'));
    for (const index of [0, 1, 2]) freeze(index);
    const attempt = backend.acquire(request('order', { ...ONE_ATTEMPT, lease: 600_000 }));
    const failed = expect(attempt).rejects.toBeInstanceOf(LockUnavailableError);
    const name = new RedlockKeyLayout('lock').lockOf('order');
    const votes = async () => (await Promise.all([3, 4].map((index) => quorum.admins[index]!.exists(name)))).join();
    await until(async () => (await votes()) === '1,1', 'the other nodes have voted');
    // The commandTimeout of 1 s, and the grace for a reply that has arrived but was not read yet. A tenth of the lease
    // is a minute.
    await clock.advance(2_000);
    await failed;
    await until(async () => (await votes()) === '0,0', "the minority's votes are released");
  });

  it('Q1: the loss of the majority and its return are reported once each, and then the lock works again', async () => {
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

  it('Q2: while a third party has three of five votes, neither caller wins; when they end, one does, and then the other', async () => {
    const name = new RedlockKeyLayout('lock').lockOf('order');
    const [ann, bob] = [await startRedlock(quorum), await startRedlock(quorum)];
    // Votes that no process releases take three of five nodes for a while.
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
    let probes = 0;
    const everyNodeKnowsTokens = () =>
      until(async () => {
        await bob.backend.acquire(request(`probe:${(probes += 1)}`, ONE_ATTEMPT)).catch(() => 'busy');
        const known = quorum.admins.map((admin) => admin.exists('lock:redlock').catch(() => 0));
        return (await Promise.all(known)).every((count) => count === 1);
      }, 'every node knows tokens');
    // Three nodes without tokens would count as a new namespace.
    await everyNodeKnowsTokens();
    // Two nodes do not vote, so three are a bare majority.
    const name = new RedlockKeyLayout('lock').lockOf('order');
    for (const admin of quorum.admins.slice(3)) await admin.set(name, 'x'.repeat(60));
    const first = granted(await ann.backend.acquire(request('order', { lease: 600_000 })));
    for (const admin of quorum.admins.slice(3)) await admin.del(name);
    await quorum.servers[0]!.crash();
    // Until a grant reaches the node again, it does not count for tokens, and no second holder is possible.
    expect(await bob.backend.acquire(request('order', ONE_ATTEMPT)).catch(() => 'busy')).toBe('busy');
    await everyNodeKnowsTokens();
    await until(async () => {
      const answer = await bob.backend.acquire(request('order', ONE_ATTEMPT)).catch(() => 'busy' as const);
      return answer !== 'busy' && answer.fencingToken! > first.fencingToken!;
    }, 'a second holder gets the lock, with a larger token');
  });

  it('Q3: with delayedRestart, a node that has just started does not vote, so there is no second holder', async () => {
    const [ann, bob] = await Promise.all([1, 2].map(() => startRedlock(quorum)));
    await until(() => ann!.backend.acquire(request('probe', ONE_ATTEMPT)).then(() => true), "ann's votes succeed");
    const guarded = await startRedlock({ ...quorum, maxLease: '1d', delayedRestart: true });
    // All five nodes have started within the last day.
    await expect(guarded.backend.acquire(request('order', ONE_ATTEMPT))).rejects.toMatchObject({
      cause: { message: expect.stringContaining('maxLease') as string },
    });
    expect(await bob!.backend.acquire(request('order', ONE_ATTEMPT))).not.toBe('busy');
  });

  it('Q3: with delayedRestart, a node votes again once it is older than maxLease', async () => {
    const maxLease = 86_400_000;
    const clock = new FakeClock();
    const { backend, events } = await startRedlock({ ...quorum, maxLease, delayedRestart: true }, { clock });
    await Promise.all(quorum.servers.slice(0, 3).map((server) => server.crash()));
    await until(async () => {
      await clock.advance(100);
      return events.some(({ type }) => type === 'recovered');
    }, 'the majority is back');
    const attempt = () => backend.acquire(request('order', { ...ONE_ATTEMPT, lease: maxLease }));
    await expect(attempt()).rejects.toBeInstanceOf(LockUnavailableError);
    await clock.advance(maxLease);
    granted(await attempt());
  });

  it('Q4: votes that arrive after a tenth of the lease do not count, and are released', async () => {
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

  it('Q5: tokens grow when every grant comes from a different majority, and a node loses its data meanwhile', async () => {
    const { wires, nodes } = await wiresTo(quorum);
    const backends = await Promise.all([1, 2].map(() => startRedlock({ nodes })));
    const tokens: bigint[] = [];
    const take = async (round: number, holds = backends[round % 2]!) => {
      let grant: TestGrant | undefined;
      await until(async () => {
        const answer = await holds.backend.acquire(request('order', ONE_ATTEMPT)).catch(() => 'busy' as const);
        if (answer !== 'busy') grant = answer;
        return grant !== undefined;
      }, 'a majority grants the lock');
      tokens.push(grant!.fencingToken!);
      await until(async () => (await holds.backend.release(grant!, RELEASE)) !== 'unknown', 'the lock is released');
    };
    // From here on all five nodes know tokens. Before, two nodes that are down and a new one leave no majority that
    // remembers.
    await take(0);
    await until(
      async () => (await quorum.admins[0]!.exists('lock:redlock')) === 1,
      'the first grant has reached all nodes',
    );
    for (let round = 0; round < 12; round += 1) {
      const down = [wires[round % 5]!, wires[(round * 2 + 1) % 5]!];
      for (const wire of down) wire.refuse();
      await take(round);
      for (const wire of down) wire.admit();
      if (round === 6) await quorum.admins[0]!.flushall();
      // Until a vote of the flushed node arrives before the release, the node does not count for tokens.
      await until(async () => {
        await take(round + 1);
        return (await quorum.admins[0]!.exists('lock:redlock')) === 1;
      }, 'the node knows tokens again');
    }
    const sorted = [...tokens].sort((a, b) => (a < b ? -1 : 1));
    expect(tokens).toEqual(sorted);
    expect(new Set(tokens).size).toBe(tokens.length);
    await Promise.all(wires.map((wire) => wire.close()));
  });

  it('nodes on the same server are rejected', async () => {
    const [first, second] = quorum.nodes;
    await expect(startRedlock({ nodes: [first!, second!, first!] })).rejects.toThrow(LockConfigError);
    await expect(startRedlock({ nodes: [first!, second!, first!] })).rejects.toThrow('the same server');
  });

  it('diagnostics warn about an even number of nodes and about restarts without AOF', async () => {
    const { backend } = await startRedlock({ nodes: quorum.nodes.slice(0, 4) });
    const messages = (await backend.diagnose()).map(({ message }) => message);
    expect(messages[0]).toContain('odd number');
    expect(messages.filter((message) => message.includes('delayedRestart'))).toHaveLength(4);
  });

  it('leases, minHold and extensions beyond maxLease are rejected, and the lock is unchanged', async () => {
    const locks = await startLocks({ ...quorum, maxLease: '20s' });
    for (const options of [{ lease: '21s' }, { minHold: '21s' }] as const) {
      const asked = locks.acquire('order', options);
      await expect(asked).rejects.toBeInstanceOf(LockConfigError);
      await expect(asked).rejects.toThrow('exceeds "maxLease" of lock provider "redlock" (20000 ms)');
    }
    // The built-in default lease of 30 s is shortened to maxLease.
    const lock = await locks.acquire('order');
    const extended = lock.extend('21s');
    await expect(extended).rejects.toBeInstanceOf(LockConfigError);
    await expect(extended).rejects.toThrow('"lease" is 21000 ms');
    expect(lock.isHeld()).toBe(true);
    await lock.extend('20s');
    expect(await quorum.admins[0]!.pttl(new RedlockKeyLayout('lock').lockOf('order'))).toBeLessThanOrEqual(20_000);
    expect(await lock.release()).toBe('released');
  });

  it('SCRIPT FLUSH does not affect a held lock', async () => {
    const { backend } = await startRedlock(quorum);
    const grant = granted(await backend.acquire(request('order')));
    await Promise.all(quorum.admins.map((admin) => admin.script('FLUSH')));
    expect(await backend.renew(grant, 30_000)).toMatchObject({ validUntil: expect.any(Number) as number });
    expect(await backend.release(grant, RELEASE)).toBe('released');
  });
});
