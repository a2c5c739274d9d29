import { PendingReleases } from '../../lib/providers/redlock/node.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { NO_TOKEN } from '../../lib/providers/redlock/lock-script.js';
import { granted, RELEASE, request, until } from '../redis/seam.js';
import { FakeClock } from '../../lib/testing/index.js';
import type { TcpProxy } from '../servers/tcp-proxy.js';
import { type Quorum, type StartedRedlock, startQuorum, startRedlock, wiresTo } from './quorum.js';

const ORDER = new RedlockKeyLayout('lock').lockOf('order');
const LONG = { lease: 600_000 };

function heapUsed(): number {
  const { gc } = globalThis as { gc?: () => void };
  if (!gc) throw new Error('Run node with --expose-gc.');
  gc();
  return process.memoryUsage().heapUsed;
}

describe('releases that a node has not answered', () => {
  let quorum: Quorum;
  let wires: readonly TcpProxy[];
  let redlock: StartedRedlock;
  beforeAll(async () => {
    quorum = await startQuorum(3);
  });
  beforeEach(async () => {
    await quorum.flush();
    const wired = await wiresTo(quorum);
    wires = wired.wires;
    redlock = await startRedlock({ nodes: wired.nodes });
    await redlock.backend.acquire(request('warm'));
  });
  afterEach(async () => {
    await redlock.backend.close();
    await Promise.all(wires.map((wire) => wire.close()));
  });
  afterAll(() => quorum.stop());

  it('are resent when the node is back', async () => {
    const grant = granted(await redlock.backend.acquire(request('order', LONG)));
    await until(async () => (await quorum.votes('order')) === 3, 'all nodes have voted');
    wires[2]!.refuse();
    expect(await redlock.backend.release(grant, RELEASE)).toBe('released');
    expect(await quorum.votes('order')).toBe(1);
    wires[2]!.admit();
    await until(async () => (await quorum.votes('order')) === 0, 'the vote is gone');
  });

  it('are resent even if the node is back after more than maxLease, since it may have been frozen', async () => {
    const time = new FakeClock();
    const frozen = await wiresTo(quorum);
    const { backend } = await startRedlock({ nodes: frozen.nodes }, { clock: time });
    const grant = granted(await backend.acquire(request('order', LONG)));
    await until(async () => (await quorum.votes('order')) === 3, 'all nodes have voted');
    frozen.wires[2]!.refuse();
    expect(await backend.release(grant, RELEASE)).toBe('released');
    expect(await quorum.votes('order')).toBe(1);
    await time.advance(700_000);
    frozen.wires[2]!.admit();
    const isFree = async () => {
      await time.advance(1_000);
      return (await quorum.votes('order')) === 0;
    };
    await until(isFree, 'the vote is gone');
    await backend.close();
    await Promise.all(frozen.wires.map((wire) => wire.close()));
  });

  it('are resent even for an unanswered vote of an attempt that found the lock busy', async () => {
    const others = quorum.admins.slice(0, 2);
    for (const admin of others) await admin.set(ORDER, 'x'.repeat(60));
    for (const wire of wires) wire.holdReplies();
    const asked = redlock.backend.acquire(request('order', { ...LONG, wait: 0 }));
    await until(async () => (await quorum.votes('order')) === 3, 'the third node has voted');
    // The connection's fault is known, and the node reconnected, before the others refuse.
    const { connections } = wires[2]!;
    wires[2]!.cut();
    await until(() => wires[2]!.connections > connections, 'the node is reconnected');
    for (const wire of wires) wire.passReplies();
    expect(await asked).toBe('busy');
    await until(async () => (await quorum.votes('order')) === 2, "the third node's vote is gone");
  });

  it("use no memory while a node is down, for locks that can't have a vote there", async () => {
    const cycles = async (count: number) => {
      let left = count;
      const loop = async (caller: number) => {
        for (; left > 0; left -= 1) {
          const grant = granted(await redlock.backend.acquire(request(`k${caller}`, LONG)));
          await redlock.backend.release(grant, RELEASE);
        }
      };
      await Promise.all(Array.from({ length: 64 }, (_, caller) => loop(caller)));
    };
    wires[2]!.refuse();
    await cycles(2_000);
    const before = heapUsed();
    await cycles(30_000);
    // Each release once took 0.6 KB: 18 MB in total.
    expect(heapUsed() - before).toBeLessThan(4_000_000);
  }, 120_000);
});

describe("the list of one node's pending releases", () => {
  const holder = (index: number) => String(index).padStart(32, '0');
  const release = (index: number) => ({ lock: 'lock:redlock:order', args: ['R', holder(index), '0'] }) as const;
  const cleanUp = (index: number) =>
    ({ lock: 'lock:redlock:order', args: ['C', holder(index) + NO_TOKEN + '000000000001', '0'] }) as const;

  it('has one entry per attempt, the latest', () => {
    const pending = new PendingReleases();
    pending.add(cleanUp(1));
    pending.add(release(2));
    pending.add(release(1));
    expect(pending.take()).toEqual([release(1), release(2)]);
    expect(pending.size).toBe(0);
  });

  it('is bounded: the oldest are dropped', () => {
    const pending = new PendingReleases();
    for (let index = 0; index < 10_005; index += 1) pending.add(release(index));
    expect(pending.size).toBe(10_000);
    expect(pending.take()[0]).toEqual(release(5));
  });
});
