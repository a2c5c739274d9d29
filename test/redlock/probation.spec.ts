import { EventEmitter } from 'node:events';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { RedlockNode } from '../../lib/providers/redlock/node.js';
import type { RedisConnection } from '../../lib/providers/redis/client/redis-connection.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { contextFor } from '../redis/seam.js';

const MAX_LEASE = 10_000;

/** A server that answers which run it is when the test says so, has one key, and answers everything else immediately. */
class SlowServer extends EventEmitter implements RedisConnection {
  answerInfo!: (info: string) => void;
  noted: string | null = null;

  connect(): Promise<unknown> {
    this.emit('ready');
    return Promise.resolve();
  }

  disconnect(): void {
    this.emit('close');
  }

  call(command: string, ...args: string[]): Promise<unknown> {
    if (command === 'info' && args[0] === 'server') return new Promise((resolve) => (this.answerInfo = resolve));
    if (command === 'get') return Promise.resolve(this.noted);
    if (command === 'set') this.noted = args[1]!;
    return Promise.resolve([]);
  }

  ssubscribe(): Promise<unknown> {
    return this.subscribe();
  }

  subscribe(): Promise<unknown> {
    return Promise.resolve();
  }

  /** The server was started again: whether with its data or without. */
  async restart(clock: FakeClock, runId: string): Promise<void> {
    this.emit('close');
    this.emit('ready');
    await clock.advance(0);
    this.answerInfo(infoOf(runId));
    await clock.advance(0);
  }
}

// By its own wall clock it is old: the clock was corrected just after the boot.
function infoOf(runId: string): string {
  return `run_id:${runId}\r\nuptime_in_seconds:9999999\r\n`;
}

function nodeOf(server: SlowServer, clock: FakeClock, maxLease = MAX_LEASE): RedlockNode {
  const settings = { nodes: [], maxLease, delayedRestart: true, commandTimeout: 500 };
  const all: RedlockNode[] = [];
  const node = new RedlockNode(
    contextFor([], { clock }),
    settings,
    new RedlockKeyLayout('lock'),
    server,
    0,
    all,
    () => undefined,
  );
  all.push(node);
  return node;
}

describe('delayedRestart: a node does not vote until some process has counted maxLease for its run', () => {
  let clock: FakeClock;
  let server: SlowServer;
  let node: RedlockNode;
  const connect = async (info: string) => {
    const connected = node.connect();
    await clock.advance(0);
    server.answerInfo(info);
    await connected;
  };
  beforeEach(() => {
    clock = new FakeClock();
    server = new SlowServer();
    node = nodeOf(server, clock);
  });
  afterEach(() => node.close());

  it('counts from the answer, whatever the uptime by the wall clock of the node, and notes the run on the node at the end', async () => {
    const connected = node.connect();
    await clock.advance(400);
    server.answerInfo(infoOf('a'));
    await connected;
    const seenAt = clock.now();
    expect(node.cause).toMatchObject({ message: expect.stringContaining('does not vote yet') as string });
    expect(node.mayVote(seenAt + MAX_LEASE - 1)).toBe(false);
    expect(node.mayVote(seenAt + MAX_LEASE)).toBe(true);
    await clock.advance(MAX_LEASE - 1);
    expect(server.noted).toBeNull();
    await clock.advance(1);
    expect(server.noted).toBe(`a ${MAX_LEASE}`);
    // Once it is down, that is why it does not answer.
    server.emit('close');
    expect(node.cause).toMatchObject({ message: 'The connection was closed.' });
  });

  it('goes on counting when the connection was lost and the run is the same, and begins again with another run', async () => {
    await connect(infoOf('a'));
    const seenAt = clock.now();
    await clock.advance(6_000);
    await server.restart(clock, 'a');
    expect(node.mayVote(seenAt + MAX_LEASE)).toBe(true);
    await server.restart(clock, 'b');
    expect(node.mayVote(seenAt + MAX_LEASE)).toBe(false);
    expect(node.mayVote(clock.now() + MAX_LEASE)).toBe(true);
    await clock.advance(MAX_LEASE - 1);
    expect(server.noted).toBeNull();
  });

  it.each([
    ['votes immediately when another process has noted this run', `a ${MAX_LEASE}`, true],
    ['counts when another run is noted', `b ${MAX_LEASE}`, false],
    ['counts when a shorter maxLease was counted', `a ${MAX_LEASE - 1}`, false],
  ])('%s', async (_, noted, votes) => {
    server.noted = noted;
    await connect(infoOf('a'));
    expect(node.mayVote(clock.now())).toBe(votes);
  });

  it('never votes while nobody knows its run', async () => {
    await connect('uptime_in_seconds:9999999\r\n');
    expect(node.mayVote(clock.now() + 100 * MAX_LEASE)).toBe(false);
  });

  it('leaves no timer', async () => {
    await connect(infoOf('a'));
    expect(clock.pendingTimers).toBeGreaterThan(0);
    // The timer of the last command ends by itself.
    await clock.advance(1_000);
    expect(clock.pendingTimers).toBe(1);
    await node.close();
    expect(clock.pendingTimers).toBe(0);
  });
});
