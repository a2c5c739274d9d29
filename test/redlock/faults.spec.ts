import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { granted, RELEASE, request, until } from '../redis/seam.js';
import { IOREDIS, NODE_REDIS } from '../redis/client-libraries.js';
import type { TcpProxy } from '../servers/tcp-proxy.js';
import { type Quorum, startLocks, startQuorum, startRedlock, wiresTo } from './quorum.js';

const NAME = new RedlockKeyLayout('lock').lockOf('order');
const ANOTHER_HOLDER = 'x'.repeat(60);
const ONE_ATTEMPT = { wait: 0 };

describe.each([IOREDIS, NODE_REDIS])('five nodes and late votes, with %s', (library) => {
  let quorum: Quorum;
  const open: TcpProxy[] = [];
  const wired = async (options: { maxLease?: string } = {}) => {
    const { wires, nodes } = await wiresTo(quorum, library);
    open.push(...wires);
    return { wires, ...(await startRedlock({ nodes, ...options })) };
  };
  const own = () => quorum.servers.map(({ url }) => library.server(url));
  beforeAll(async () => {
    quorum = await startQuorum(5);
  });
  beforeEach(() => quorum.flush());
  afterEach(async () => {
    for (const server of quorum.servers) server.signal('SIGCONT');
    await Promise.all(open.splice(0).map((wire) => wire.close()));
  });
  afterAll(() => quorum.stop());

  it('Q2: 2/2/1: three callers that split the votes all get the lock within a few rounds', async () => {
    const callers = await Promise.all([wired(), wired(), wired()]);
    await Promise.all(callers.map(({ backend }, index) => backend.acquire(request(`warm:${index}`))));
    const reach = [[0, 1], [2, 3], [4]];
    callers.forEach(({ wires }, index) => {
      wires.filter((_, node) => !reach[index]!.includes(node)).forEach((wire) => wire.freeze());
    });
    const tokens: bigint[] = [];
    const answers = callers.map(async ({ backend }) => {
      // Unreleased votes would outlast this test.
      const grant = granted(await backend.acquire(request('order', { lease: 600_000 })));
      tokens.push(grant.fencingToken!);
      expect(await backend.release(grant, RELEASE)).toBe('released');
    });
    await until(async () => (await quorum.votes('order')) === 5, 'all nodes have voted, and no caller has three votes');
    for (const { wires } of callers) for (const wire of wires) wire.thaw();
    await Promise.all(answers);
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => (a < b ? -1 : 1)));
  });

  it('a vote that arrives after the release is released too', async () => {
    const { wires, backend } = await wired();
    await backend.acquire(request('warm'));
    wires[4]!.freeze();
    const grant = granted(await backend.acquire(request('order')));
    expect(await backend.release(grant, RELEASE)).toBe('released');
    wires[4]!.thaw();
    // In order: once this is executed, so is everything sent before.
    await backend.acquire(request('after'));
    await until(
      async () => (await quorum.admins[4]!.exists(`${NAME.slice(0, -5)}after`)) === 1,
      'the fifth node has voted',
    );
    expect(await quorum.votes('order')).toBe(0);
  });

  it('a vote that arrives after the attempt has failed is released too', async () => {
    const { wires, backend } = await wired();
    await backend.acquire(request('warm'));
    for (const admin of quorum.admins.slice(0, 3)) await admin.set(NAME, ANOTHER_HOLDER);
    wires[4]!.freeze();
    expect(await backend.acquire(request('order', ONE_ATTEMPT))).toBe('busy');
    wires[4]!.thaw();
    await backend.acquire(request('after'));
    await until(
      async () => (await quorum.admins[4]!.exists(`${NAME.slice(0, -5)}after`)) === 1,
      'the fifth node has voted',
    );
    expect(await quorum.votes('order')).toBe(3);
  });

  it.each<[string, (wires: readonly TcpProxy[]) => Promise<unknown>]>([
    [
      'waits for another holder',
      () => Promise.all(quorum.admins.slice(0, 3).map((admin) => admin.set(NAME, ANOTHER_HOLDER))),
    ],
    ['has its votes in flight', async (wires) => wires.forEach((wire) => wire.holdReplies())],
  ])('stop() while an attempt %s leaves nothing behind', async (_, disturb) => {
    const { wires, nodes } = await wiresTo(quorum, library);
    open.push(...wires);
    const locks = await startLocks({ nodes });
    await (await locks.acquire('warm')).release();
    await disturb(wires);
    const asked = locks.acquire('order').catch((error: unknown) => error);
    await until(async () => (await quorum.votes('order')) >= 3, 'the attempt has sent its votes');
    const stopped = locks.stop();
    for (const wire of wires) wire.passReplies();
    await stopped;
    expect(await asked).toBeInstanceOf(Error);
    for (const admin of quorum.admins.slice(0, 3))
      if ((await admin.get(NAME)) === ANOTHER_HOLDER) await admin.del(NAME);
    await until(async () => (await quorum.votes('order')) === 0, 'nothing is left');
  });

  // Without delayedRestart, the second holder must arrive during the first one's lease, so the lease is long. With it,
  // the test waits for the lease to end.
  it.each([
    [false, 600_000],
    [true, 6_000],
  ])(
    'Q3: one node of a bare majority restarts empty; delayedRestart: %s',
    async (delayedRestart, maxLease) => {
      const [ann, bob] = await Promise.all([1, 2].map(() => startRedlock({ nodes: own(), maxLease, delayedRestart })));
      const lease = maxLease - 100;
      const ask = (who: typeof ann, key: string) =>
        who!.backend.acquire(request(key, { ...ONE_ATTEMPT, lease })).catch(() => 'busy' as const);
      const allVoteFor = async (who: typeof ann) => {
        const key = `probe:${performance.now()}`;
        return (await ask(who, key)) !== 'busy' && (await quorum.votes(key)) === 5;
      };
      // The nodes are old enough, and know tokens.
      for (const who of [ann, bob]) await until(() => allVoteFor(who), 'all five nodes vote', 30_000);
      for (const admin of quorum.admins.slice(3)) await admin.set(NAME, ANOTHER_HOLDER);
      const first = granted(await ask(ann, 'order'));
      for (const admin of quorum.admins.slice(3)) await admin.del(NAME);
      await quorum.servers[0]!.crash();
      let second: Awaited<ReturnType<typeof ask>> = 'busy';
      let whileHeld = false;
      await until(
        async () => {
          // Other locks restore the counter.
          await ask(bob, `probe:${performance.now()}`);
          const isHeld = performance.now() < first.validUntil;
          second = await ask(bob, 'order');
          whileHeld = isHeld && performance.now() < first.validUntil;
          return second !== 'busy';
        },
        'there is a second holder',
        60_000,
      );
      expect(whileHeld).toBe(!delayedRestart);
      expect(granted(second).fencingToken).toBeGreaterThan(first.fencingToken!);
    },
    120_000,
  );
});
