import { jest } from '@jest/globals';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { tokenDigits } from '../../lib/providers/redlock/lock-script.js';
import type { RedlockCommand } from '../../lib/providers/redlock/node.js';
import type { RedlockNodes } from '../../lib/providers/redlock/nodes.js';
import { type Agreement, AgreementPoll } from '../../lib/providers/redlock/poll.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { direct, type TestGrant } from '../direct-backend.js';
import { contextFor, granted, request, RELEASE } from '../redis/seam.js';
import { Line } from './interleaved-quorum.js';
import { LuaNode } from './lua-node.js';
import { EventEmitter } from 'node:events';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { type IoredisClient, type IoredisConnection } from '../../lib/providers/redis/index.js';

const TIMEOUT = 500;

class TestPoll extends AgreementPoll {
  readonly late: unknown[] = [];

  protected override onLate(reply: unknown, node: number): void {
    this.late.push([reply, node]);
  }
}

function pollOf(count: number): { poll: TestPoll; clock: FakeClock; outcome: Promise<Agreement> } {
  const clock = new FakeClock();
  const sent: RedlockCommand[] = [];
  const nodes = {
    count,
    majority: Math.floor(count / 2) + 1,
    clock,
    timeoutOf: () => TIMEOUT,
    send: (command: RedlockCommand) => sent.push(command),
  } as unknown as RedlockNodes;
  const poll = new TestPoll(nodes, 'lock:redlock:order', ['W', '1'.repeat(32) + tokenDigits(1) + '1', '0']);
  const outcome = poll.start();
  expect(sent).toEqual([poll]);
  return { poll, clock, outcome };
}

describe('a poll of five nodes', () => {
  // 1: yes, 0: no, x: a fault.
  it.each([
    ['111', 'agreed', 'a majority has agreed'],
    ['1x0x1', 'undecided', 'two have agreed, and one of the silent nodes may have'],
    ['000', 'refused', 'a majority can no longer agree'],
    ['xxx', 'unknown', 'a majority does not respond'],
    ['11x01', 'agreed', 'the last node decides'],
  ])('%s is %s: %s', async (answers, expected) => {
    const { poll, outcome } = pollOf(5);
    Array.from(answers).forEach((answer, node) => {
      expect(poll.isOpen).toBe(true);
      if (answer === 'x') poll.onFault(new Error('down'));
      else poll.onReply(Number(answer), node);
    });
    expect(poll.isOpen).toBe(false);
    expect(await outcome).toBe(expected);
  });

  it('is decided by the timeout if nodes are silent, but only after replies that have arrived are read', async () => {
    const { poll, clock, outcome } = pollOf(5);
    poll.onReply(1, 0);
    await clock.advance(TIMEOUT);
    expect(poll.isOpen).toBe(true);
    await clock.advance(1);
    expect(await outcome).toBe('unknown');
    expect(poll.cause).toMatchObject({ message: 'No answer in time.' });
  });

  it('passes on late replies but not late faults, and leaves no timer', async () => {
    const { poll, clock, outcome } = pollOf(3);
    poll.onReply(1, 0);
    poll.onReply(1, 2);
    expect(clock.pendingTimers).toBe(0);
    poll.onReply(0, 1);
    poll.onFault(new Error('down'));
    expect(poll.late).toEqual([[0, 1]]);
    expect(await outcome).toBe('agreed');
  });

  it('leaves no timer if it is settled without its replies', async () => {
    const { poll, clock, outcome } = pollOf(3);
    poll.settle('undecided');
    expect(clock.pendingTimers).toBe(0);
    expect(await outcome).toBe('undecided');
  });
});

describe('a silent node', () => {
  it('is called last, so it does not delay the nodes that respond', async () => {
    const clock = new FakeClock();
    const lines = [0, 1, 2].map(() => new Line(new LuaNode(() => clock.wallTime())));
    const provider = new RedlockLockProvider({ nodes: lines.map((client) => ({ client })), maxLease: '1h' });
    const backend = direct(provider.createBackend(contextFor([], { clock })));
    await backend.connect();
    const calls = lines.map((line) => jest.spyOn(line, 'call'));
    const inOrder = () =>
      [0, 1, 2].sort((one, other) => {
        const [first = 0, second = 0] = [one, other].map((line) => calls[line]!.mock.invocationCallOrder.at(-1));
        return first - second;
      });
    /** Delivers the votes, and then the token, only to the second and third nodes. */
    const take = async (key: string) => {
      const asked = backend.acquire(request(key));
      for (let round = 0; round < 2; round += 1) {
        await new Promise((resolve) => setImmediate(resolve));
        if (round === 0 && key === 'first') expect(inOrder()).toEqual([0, 1, 2]);
        for (const line of lines.slice(1)) line.arrive();
      }
      granted(await asked);
    };
    await take('first');
    await take('second');
    expect(inOrder()).toEqual([1, 2, 0]);
    void backend.close();
  });
});

const ORDER = new RedlockKeyLayout('lock').lockOf('order');

interface Sent {
  readonly args: readonly string[];
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** A wire on which the test decides when each command arrives and when it is answered. */
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

  /**
   * Tells the process that the wire is cut. Returns a function that fails the unanswered commands, as the client
   * library does later.
   */
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

/**
 * Starts a request that two nodes refuse, that gets their votes in its second round, and that has requested two votes
 * from a slow node.
 */
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

describe('a slow node whose connection is lost', () => {
  it("has no vote after the release, if it refused an earlier round's vote when the later one was sent", async () => {
    const { slow, secondRound, grant, release, restore } = await started();
    const firstRound = slow.unread.splice(0, 1);
    await secondRound();
    // The node reads the first round now, and the lock becomes free before it reads the second.
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

  it("has no vote after the release, if an earlier round's cleanup fails after the release", async () => {
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
