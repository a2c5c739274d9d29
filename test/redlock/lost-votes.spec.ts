import type { RenewOutcome } from '../../lib/api/lock-provider.js';
import type { RedlockLockProviderOptions } from '../../lib/providers/redlock/index.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { tokenDigits } from '../../lib/providers/redlock/lock-script.js';
import { FakeClock } from '../../lib/testing/index.js';
import { granted, RELEASE, request, until } from '../redis/seam.js';
import type { TcpProxy } from '../servers/tcp-proxy.js';
import { type Quorum, startLocks, type StartedRedlock, startQuorum, startRedlock, wiresTo } from './quorum.js';
import type { TestGrant } from '../direct-backend.js';

const layout = new RedlockKeyLayout('lock');
const ORDER = layout.lockOf('order');
const ONE_ATTEMPT = { wait: 0 };
const LEASE = 600_000;
const RENEWED = { validUntil: expect.any(Number) as number };

describe('three nodes, some of which lose a vote while the lock is held', () => {
  let quorum: Quorum;
  let ann: StartedRedlock;
  let wires: readonly TcpProxy[];
  const started: StartedRedlock[] = [];

  const startWired = async (context: { clock?: FakeClock } = {}) => {
    const wired = await wiresTo(quorum);
    wires = wired.wires;
    ann = await startRedlock({ nodes: wired.nodes }, context);
    started.push(ann);
    await ann.backend.acquire(request('warm'));
  };
  const take = async (key: string) => granted(await ann.backend.acquire(request(key, { lease: LEASE })));
  const renew = (grant: TestGrant, lease = LEASE): Promise<RenewOutcome> => ann.backend.renew(grant, lease);
  const has = async (node: number, key: string) => (await quorum.admins[node]!.exists(key).catch(() => 0)) === 1;
  const restartEmpty = (node: number) => quorum.servers[node]!.crash();
  /** Renews until the node has a vote for the lock again, and once more, after which the vote counts. */
  const regain = async (grant: TestGrant, node: number) => {
    await until(async () => {
      expect(await renew(grant)).toEqual(RENEWED);
      return has(node, ORDER);
    }, 'the node has a vote again');
    expect(await renew(grant)).toEqual(RENEWED);
  };
  /** Resolves when all nodes have executed everything sent before. */
  const settled = async () => {
    const key = `after:${performance.now()}`;
    await ann.backend.acquire(request(key));
    await until(async () => (await quorum.votes(key)) === 3, 'all nodes have executed it');
  };

  /**
   * Resolves when the answers of all nodes but `wire`'s have been read, and all nodes have executed what follows from
   * them.
   */
  const heard = async (wire: TcpProxy) => {
    wire.freeze();
    await ann.backend.acquire(request(`heard:${performance.now()}`));
    wire.thaw();
    await settled();
  };
  /** Holds back the answer of node 3, whose vote lacks the grant's token because the node knows a larger one. */
  const takeWithLateVote = async () => {
    await quorum.admins[2]!.set(layout.counter, tokenDigits(Date.now() * 1_000 + 60_000_000));
    wires[2]!.holdReplies();
    const grant = await take('order');
    await until(async () => (await quorum.votes('order')) === 3, 'all nodes have voted');
    for (const admin of quorum.admins) await admin.config('RESETSTAT');
    return grant;
  };
  /** Counts the calls that the node has executed since then. */
  const scripts = async (node: number) =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(await quorum.admins[node]!.info('commandstats'))?.[1] ?? 0);

  beforeAll(async () => {
    quorum = await startQuorum(3);
  });
  beforeEach(async () => {
    await quorum.flush();
    await startWired();
  });
  afterEach(async () => {
    for (const { backend } of started.splice(0)) await backend.close();
    await Promise.all(wires.map((wire) => wire.close()));
  });
  afterAll(() => quorum.stop());

  it('node 1 restarts empty, and later node 2 goes down while all others are up: the lock stays valid', async () => {
    const grant = await take('order');
    await restartEmpty(0);
    await regain(grant, 0);
    // The vote is back and the counter is not, so the node does not count for tokens.
    expect(await has(0, layout.counter)).toBe(false);
    wires[1]!.refuse();
    for (let round = 0; round < 5; round += 1) expect(await renew(grant)).toEqual(RENEWED);
    expect(await ann.backend.release(grant, RELEASE)).toBe('released');
  });

  it('node 2 restarts empty after node 1 did and regained its vote: no other process gets the lock', async () => {
    const bob = await startRedlock(quorum);
    started.push(bob);
    // Other locks restore the counter. Without it, the node would not count for bob.
    const remembers = (node: number) =>
      until(async () => {
        const probe = await bob.backend
          .acquire(request(`probe:${performance.now()}`, ONE_ATTEMPT))
          .catch(() => 'busy' as const);
        if (probe !== 'busy') await bob.backend.release(probe, RELEASE);
        return has(node, layout.counter);
      }, 'the node knows tokens again');
    const grant = await take('order');
    await restartEmpty(0);
    await regain(grant, 0);
    await remembers(0);
    await restartEmpty(1);
    await remembers(1);
    expect(await bob.backend.acquire(request('order', ONE_ATTEMPT))).toBe('busy');
    await regain(grant, 1);
    expect(await ann.backend.release(grant, RELEASE)).toBe('released');
    expect(await bob.backend.acquire(request('order', ONE_ATTEMPT))).not.toBe('busy');
  });

  it('a regained vote does not count before a renewal or a recount has succeeded without it', async () => {
    const grant = await take('order');
    await settled();
    await quorum.admins[0]!.del(ORDER);
    // The recount of the first vote finds the second one lost.
    wires[0]!.freeze();
    expect(await renew(grant)).toEqual(RENEWED);
    wires[1]!.freeze();
    wires[0]!.thaw();
    await until(() => has(0, ORDER), 'the vote was requested again');
    await quorum.admins[1]!.del(ORDER);
    wires[1]!.thaw();
    // Two of three votes exist. If the first one counted, a lock could be regained that another caller held meanwhile.
    expect(await renew(grant)).toBe('lost');
    await settled();
    expect(await quorum.votes('order')).toBe(2);
  });

  it('a regained vote counts from its recount on: the next node may lose its vote before the next renewal', async () => {
    const grant = await take('order');
    await settled();
    for (const node of [0, 1, 2, 0]) {
      await quorum.admins[node]!.del(ORDER);
      expect(await renew(grant)).toEqual(RENEWED);
      await until(() => has(node, ORDER), 'the vote was requested again');
      await heard(wires[(node + 1) % 3]!);
    }
    expect(await ann.backend.release(grant, RELEASE)).toBe('released');
    await settled();
    expect(await quorum.votes('order')).toBe(0);
  });

  it('a renewal that overtakes the answers to a recount waits for them', async () => {
    const grant = await takeWithLateVote();
    for (const wire of wires.slice(0, 2)) wire.holdReplies();
    wires[2]!.passReplies();
    await until(async () => (await scripts(0)) === 1 && (await scripts(1)) === 1, 'the recount was executed');
    await quorum.admins[0]!.del(ORDER);
    const renewing = renew(grant);
    // Two nodes have answered: one has no vote, and the vote of the other does not count yet.
    wires[0]!.passReplies();
    await ann.backend.acquire(request('behind'));
    wires[1]!.passReplies();
    expect(await renewing).toEqual(RENEWED);
  });

  it('a recount does not extend votes', async () => {
    await takeWithLateVote();
    for (const admin of quorum.admins) await admin.pexpire(ORDER, LEASE / 2);
    wires[2]!.passReplies();
    await until(async () => (await scripts(0)) === 1, 'the recount was executed');
    await settled();
    for (const admin of quorum.admins) {
      const left = await admin.pttl(ORDER);
      expect(left).toBeGreaterThan(0);
      expect(left).toBeLessThanOrEqual(LEASE / 2);
    }
  });

  it('a renewal that arrives late does not shorten extended votes', async () => {
    const grant = await take('order');
    expect(await renew(grant, LEASE / 4)).toEqual(RENEWED);
    await settled();
    for (const admin of quorum.admins) expect(await admin.pttl(ORDER)).toBeGreaterThan(LEASE / 2);
  });

  it('a failed renewal requests no vote again', async () => {
    const grant = await take('order');
    await settled();
    await quorum.admins[0]!.del(ORDER);
    await quorum.admins[1]!.del(ORDER);
    expect(await renew(grant)).toBe('lost');
    await settled();
    expect(await quorum.votes('order')).toBe(1);
  });

  it.each([
    ['before the timeout', 1],
    ['late as well', 0],
  ])(
    'a renewal with an unknown outcome requests no vote again; the node without a vote has answered %s',
    async (_, firstSilent) => {
      const grant = await take('order');
      await settled();
      await quorum.admins[0]!.del(ORDER);
      for (const wire of wires.slice(firstSilent)) wire.holdReplies();
      expect(await renew(grant, 1_000)).toBe('unknown');
      for (const wire of wires) wire.passReplies();
      await settled();
      expect(await has(0, ORDER)).toBe(false);
    },
  );

  it('a regained vote does not outlive a release', async () => {
    for (const isSlow of [false, true]) {
      const grant = await take('order');
      await settled();
      await quorum.admins[0]!.del(ORDER);
      // The slow node's answer arrives after the release.
      if (isSlow) wires[0]!.freeze();
      expect(await renew(grant)).toEqual(RENEWED);
      expect(await ann.backend.release(grant, RELEASE)).toBe('released');
      wires[0]!.thaw();
      await settled();
      expect(await quorum.votes('order')).toBe(0);
    }
  });

  it('a node that was unreachable at the grant gets a vote later', async () => {
    wires[0]!.refuse();
    const grant = await take('order');
    expect(await quorum.votes('order')).toBe(2);
    wires[0]!.admit();
    await regain(grant, 0);
    wires[2]!.refuse();
    expect(await renew(grant)).toEqual(RENEWED);
    expect(await ann.backend.release(grant, RELEASE)).toBe('released');
    expect(await has(0, ORDER)).toBe(false);
  });
});

describe.each([3, 5])('%i nodes, of which a bare majority has answered at the grant', (size) => {
  const few = (size - 1) / 2;
  let quorum: Quorum;
  let wires: readonly TcpProxy[];
  let nodes: RedlockLockProviderOptions['nodes'];
  beforeAll(async () => {
    quorum = await startQuorum(size);
  });
  beforeEach(async () => {
    await quorum.flush();
    ({ wires, nodes } = await wiresTo(quorum));
  });
  afterEach(() => Promise.all(wires.map((wire) => wire.close())));
  afterAll(() => quorum.stop());

  /**
   * Acquires a process's first lock, so its votes can't carry a token, and lets the remaining votes arrive after the
   * grant.
   */
  const grantBefore = async <T>(acquire: (key: string) => Promise<T>): Promise<T> => {
    for (const wire of wires.slice(-few)) wire.holdReplies();
    const got = await acquire('order');
    for (const wire of wires.slice(-few)) wire.passReplies();
    // This needs an answer of the late nodes, so their earlier answers have been read.
    for (const wire of wires.slice(0, few)) wire.freeze();
    await acquire('behind');
    for (const wire of wires) wire.thaw();
    await acquire('after');
    await until(async () => (await quorum.votes('after')) === size, 'all nodes have executed everything sent before');
    return got;
  };

  it('late votes count before the next renewal', async () => {
    const { backend } = await startRedlock({ nodes });
    const grant = await grantBefore(async (key) => granted(await backend.acquire(request(key, { lease: LEASE }))));
    for (const admin of quorum.admins.slice(0, few)) await admin.del(ORDER);
    expect(await backend.renew(grant, LEASE)).toEqual(RENEWED);
    expect(await backend.release(grant, RELEASE)).toBe('released');
    await backend.close();
  });

  it('the holder keeps the lock', async () => {
    const locks = await startLocks({ nodes });
    const lock = await grantBefore((key) => locks.acquire(key, { lease: '2s' }));
    await quorum.servers[0]!.crash();
    let renewals = 0;
    locks.events.on('renewed', ({ key }) => (renewals += key === 'order' ? 1 : 0));
    // The last one is sent when the votes of the grant would have ended.
    await until(() => renewals >= 4 || lock.signal.aborted, 'the lock is renewed or lost');
    expect(lock.signal.aborted).toBe(false);
    expect(await lock.release()).toBe('released');
    await locks.stop();
  });
});

describe('a renewal', () => {
  let quorum: Quorum;
  beforeAll(async () => {
    quorum = await startQuorum(3);
  });
  afterAll(() => quorum.stop());

  it('is decided by its own majority: it waits for neither silent nodes nor other locks', async () => {
    const { wires, nodes } = await wiresTo(quorum);
    // The clock stands still, so waiting for a node to be late never ends.
    const { backend } = await startRedlock({ nodes }, { clock: new FakeClock() });
    await backend.acquire(request('warm'));
    const [one, other] = [
      granted(await backend.acquire(request('one'))),
      granted(await backend.acquire(request('other'))),
    ];
    await until(async () => (await quorum.votes('other')) === 3, 'all nodes have voted');
    // The other lock lacks one vote, and the silent node decides.
    await quorum.admins[0]!.del(layout.lockOf('other'));
    wires[2]!.freeze();
    let isOtherDecided = false;
    const renewingOther = backend.renew(other, 30_000).finally(() => (isOtherDecided = true));
    expect(await backend.renew(one, 30_000)).toEqual(RENEWED);
    expect(isOtherDecided).toBe(false);
    wires[2]!.thaw();
    expect(await renewingOther).toEqual(RENEWED);
    await backend.close();
    await Promise.all(wires.map((wire) => wire.close()));
  });
});
