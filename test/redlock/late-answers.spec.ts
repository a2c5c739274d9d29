import { EventEmitter } from 'node:events';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { type IoredisClient, type IoredisConnection } from '../../lib/providers/redis/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { direct, type TestGrant } from '../direct-backend.js';
import { contextFor, granted, RELEASE, request } from '../redis/seam.js';
import { LuaNode } from './lua-node.js';

const ORDER = new RedlockKeyLayout('lock').lockOf('order');

interface Sent {
  readonly args: readonly string[];
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** A wire on which each command arrives, and is answered, when the test says so. */
class SlowWire extends EventEmitter implements IoredisClient, IoredisConnection {
  readonly unread: Sent[] = [];
  readonly unanswered: Sent[] = [];
  readonly #replies: unknown[] = [];

  constructor(readonly node: LuaNode) {
    super();
  }

  duplicate(): IoredisConnection {
    return this;
  }

  connect(): Promise<unknown> {
    this.emit('ready');
    return Promise.resolve();
  }

  disconnect(): void {
    // The test cuts the wire.
  }

  subscribe(): Promise<unknown> {
    return Promise.resolve();
  }

  call(command: string, ...args: string[]): Promise<unknown> {
    // The handshake.
    if (!command.startsWith('eval') || args.length === 3) return Promise.resolve('');
    return new Promise((resolve, reject) => this.unread.push({ args: args.slice(1), resolve, reject }));
  }

  execute(): void {
    for (const sent of this.unread.splice(0)) {
      this.#replies.push(this.node.run(sent.args));
      this.unanswered.push(sent);
    }
  }

  answer(): void {
    this.execute();
    for (const sent of this.unanswered.splice(0)) sent.resolve(this.#replies.shift());
  }

  /** The process learns that the wire is cut. Answers how the library tells it later that what was sent has no answer. */
  cut(): () => void {
    const lost = [...this.unanswered.splice(0), ...this.unread.splice(0)];
    this.#replies.length = 0;
    this.emit('close');
    return () => {
      for (const { reject } of lost) reject(new Error('The connection is closed.'));
    };
  }
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A request that was refused by two nodes, was granted their votes in its second round, and has asked a slow node for two votes. */
async function started() {
  const clock = new FakeClock();
  const wires = [0, 1, 2].map(() => new SlowWire(new LuaNode(() => clock.wallTime())));
  const [first, second, slow] = wires as [SlowWire, SlowWire, SlowWire];
  const provider = new RedlockLockProvider({ nodes: wires.map((client) => ({ client })), maxLease: '1h' });
  const backend = direct(provider.createBackend(contextFor([], { clock })));
  await backend.connect();
  for (const { node } of wires) node.call('set', ORDER, 'x'.repeat(60));
  const asked = backend.acquire(request('order', { lease: 600_000 }));
  const answerOthers = async () => {
    await settled();
    for (const wire of [first, second]) wire.answer();
    await settled();
  };
  await answerOthers();
  for (const { node } of [first, second]) node.call('del', ORDER);
  await answerOthers();
  const grant = async (): Promise<TestGrant> => {
    await answerOthers();
    await answerOthers();
    return granted(await asked);
  };
  const secondRound = async () => {
    await clock.advance(20);
    await settled();
  };
  const release = async (held: TestGrant) => {
    const released = backend.release(held, RELEASE);
    await answerOthers();
    expect(await released).toBe('released');
  };
  const restore = async () => {
    slow.emit('ready');
    await settled();
    slow.answer();
    await settled();
  };
  return { slow, secondRound, grant, release, restore };
}

describe('a node that is slow, whose connection is lost', () => {
  it('has no vote after the release, where it refused the vote of an earlier round when the later one was sent', async () => {
    const { slow, secondRound, grant, release, restore } = await started();
    const firstRound = slow.unread.splice(0, 1);
    await secondRound();
    // It reads the first round now, and the lock is free before it reads the second.
    firstRound[0]!.resolve(slow.node.run(firstRound[0]!.args));
    await settled();
    slow.node.call('del', ORDER);
    const held = await grant();
    slow.execute();
    expect(slow.node.has(ORDER)).toBe(true);
    slow.cut()();
    await settled();
    await release(held);
    await restore();
    expect(slow.node.has(ORDER)).toBe(false);
  });

  it('has no vote after the release, where the clean-up of an earlier round fails after the release', async () => {
    const { slow, secondRound, grant, release, restore } = await started();
    await secondRound();
    slow.node.call('del', ORDER);
    const held = await grant();
    slow.execute();
    expect(slow.node.has(ORDER)).toBe(true);
    const fail = slow.cut();
    await release(held);
    fail();
    await settled();
    await restore();
    expect(slow.node.has(ORDER)).toBe(false);
  });
});
