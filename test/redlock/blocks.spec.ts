import type { AcquireRequest } from '../../lib/api/lock-provider.js';
import type { TestGrant } from '../direct-backend.js';
import { FakeClock } from '../../lib/testing/index.js';
import { granted, RELEASE, request, until } from '../redis/seam.js';
import { type Quorum, startLocks, startQuorum, startRedlock } from './quorum.js';

// A counter of the year 2100: the tokens that a process expects from its clock are smaller, so each token follows from
// earlier ones.
const FUTURE = 4_102_444_800_000_000n;
const LAST_OF_64 = 63n;

describe('blocks of tokens for callers of one process, on three nodes', () => {
  let quorum: Quorum;
  const COUNTER = 'lock:redlock';
  // The clock of each process stands still, so it expects the token after its last one.
  const start = async () => (await startRedlock(quorum, { clock: new FakeClock() })).backend;
  type Backend = Awaited<ReturnType<typeof start>>;
  const take = async (backend: Backend, terms: Partial<AcquireRequest> = {}): Promise<TestGrant> =>
    granted(await backend.acquire(request('order', terms)));
  /** Releases the lock on all nodes, so the next grant depends only on the tokens. */
  const giveBack = async (backend: Backend, grant: TestGrant) => {
    expect(await backend.release(grant, RELEASE)).toBe('released');
    await until(async () => (await quorum.votes('order')) === 0, 'all nodes have released the lock');
  };
  const pass = async (backend: Backend, callers = 1): Promise<TestGrant> => {
    const grant = await take(backend, { callers });
    await giveBack(backend, grant);
    return grant;
  };
  const lastOf = ({ fencingToken, followers = 0 }: TestGrant) => fencingToken! + BigInt(followers);
  const counters = () => Promise.all(quorum.admins.map((admin) => admin.get(COUNTER)));

  beforeAll(async () => {
    quorum = await startQuorum(3);
  });
  beforeEach(async () => {
    await quorum.flush();
    await Promise.all(quorum.admins.map((admin) => admin.set(COUNTER, String(FUTURE))));
  });
  afterAll(() => quorum.stop());

  it('give each caller the next token with one call to each node, and the next process a larger one', async () => {
    const [ann, bob] = [await startLocks(quorum, new FakeClock()), await startLocks(quorum)];
    const first = await ann.acquire('order');
    const tokens: (bigint | null)[] = [];
    const waiting = [1, 2, 3, 4].map(async () => {
      const lock = await ann.acquire('order', { wait: '1m' });
      tokens.push(lock.fencingToken);
      await lock.release();
    });
    await until(async () => (await quorum.votes('order')) === 3, 'all nodes have voted');
    await Promise.all(quorum.admins.map((admin) => admin.config('RESETSTAT')));
    await first.release();
    await Promise.all(waiting);
    expect(tokens).toEqual([1n, 2n, 3n, 4n].map((count) => first.fencingToken! + count));
    await until(async () => (await quorum.votes('order')) === 0, 'all nodes have released the lock');
    // A single call carries the first release and the request for the other callers, and another one their release.
    expect(await quorum.calls(0)).toBe(2);
    expect((await bob.acquire('order')).fencingToken).toBeGreaterThan(tokens.at(-1)!);
  });

  it.each([
    // A process's first lock is written back.
    ['the write-back', 0],
    ['the votes', 1],
  ])('store their last token with %s, even if no caller uses it', async (_, before) => {
    const [ann, bob] = [await start(), await start()];
    for (let times = 0; times < before; times += 1) await pass(ann);
    const block = await pass(ann, 64);
    expect(block).toMatchObject({ fencingToken: FUTURE + BigInt(before) + 1n, followers: 63 });
    await until(
      async () => (await counters()).every((each) => each === String(lastOf(block))),
      'all nodes store the last token',
    );
    expect((await pass(bob)).fencingToken).toBe(lastOf(block) + 1n);
  });

  it('are compared by their first token: a process does not continue a block that another process has started', async () => {
    const [ann, bob] = [await start(), await start()];
    await pass(ann);
    const blocks = [await pass(bob, 8), await pass(ann, 64)];
    expect(blocks[1]!.fencingToken).toBe(lastOf(blocks[0]!) + 1n);
    expect(lastOf(blocks[1]!)).toBe(blocks[1]!.fencingToken! + LAST_OF_64);
  });

  it("survive a node's data loss while the lock is held: the node learns the last token with the next grant, or does not count", async () => {
    const [ann, bob] = [await start(), await start()];
    await pass(ann);
    const block = await take(ann, { callers: 64 });
    await quorum.admins[0]!.flushall();
    await ann.release(block, RELEASE);
    await until(async () => (await quorum.votes('order')) === 0, 'all nodes have released the lock');
    const next = await take(bob, { callers: 64 });
    expect(next.fencingToken).toBe(lastOf(block) + 1n);
    await until(async () => (await counters())[0] === String(lastOf(next)), 'the node knows the last token');
  });

  it('are found again with their last token and without followers', async () => {
    const ann = await start();
    for (let times = 0; times < 2; times += 1) {
      const asked = request('order', { callers: 64 });
      const block = granted(await ann.acquire(asked));
      await until(async () => (await quorum.votes('order')) === 3, 'all nodes have voted');
      expect(granted(await ann.acquire(asked))).toMatchObject({ fencingToken: lastOf(block), followers: 0 });
      await giveBack(ann, block);
    }
  });

  it('are not reserved with minHold', async () => {
    const ann = await start();
    for (const token of [FUTURE + 1n, FUTURE + 2n]) {
      const grant = await take(ann, { callers: 64, minHold: 10 });
      expect(grant).toMatchObject({ fencingToken: token, followers: 0 });
      expect(await counters()).toContain(String(token));
      await giveBack(ann, grant);
    }
  });

  it('are stored with their last token when a vote is requested again', async () => {
    const ann = await start();
    const takeAndForget = async () => {
      const taken = await take(ann, { callers: 64, lease: 600_000 });
      await until(async () => (await quorum.votes('order')) === 3, 'all nodes have voted');
      await quorum.admins[0]!.del(`${COUNTER}:order`);
      await quorum.admins[0]!.set(COUNTER, String(FUTURE));
      return taken;
    };
    let block = await takeAndForget();
    // Two votes make a grant. If the first node's was one of them, a vote of another node does not count yet, and the
    // lock is lost.
    while ((await ann.renew(block, 600_000)) === 'lost') {
      await ann.release(block, RELEASE);
      await until(async () => (await quorum.votes('order')) === 0, 'all nodes have released the lock');
      block = await takeAndForget();
    }
    await until(async () => {
      await ann.renew(block, 600_000);
      return (await counters())[0] === String(lastOf(block));
    }, 'the node knows the last token');
    await giveBack(ann, block);
  });
});
