import { EventEmitter } from 'node:events';
import { LockUnavailableError } from '../../lib/api/errors.js';
import type { RedisConnection } from '../../lib/providers/redis/client/redis-connection.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { RedlockNode } from '../../lib/providers/redlock/node.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { contextFor, request, until } from '../redis/seam.js';
import { makeServerClock, NO_COMPILER } from '../servers/server-clock.js';
import { describeUnless } from '../unless.js';
import { type Quorum, type StartedRedlock, startQuorum, startRedlock } from './quorum.js';

const MAX_LEASE = 10_000;

/** A server that returns its run id when the test says so, has one key, and answers everything else immediately. */
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

  /** Restarts the server, with or without its data. */
  async restart(clock: FakeClock, runId: string): Promise<void> {
    this.emit('close');
    this.emit('ready');
    await clock.advance(0);
    this.answerInfo(infoOf(runId));
    await clock.advance(0);
  }
}

// By its own wall clock the server is old: the clock was corrected just after the boot.
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

  it("counts from the reply, whatever the node's uptime by its wall clock, and records the run on the node at the end", async () => {
    const connected = node.connect();
    await clock.advance(400);
    server.answerInfo(infoOf('a'));
    await connected;
    const seenAt = clock.now();
    expect(node.cause).toMatchObject({ message: expect.stringContaining('cannot vote yet') as string });
    expect(node.mayVote(seenAt + MAX_LEASE - 1)).toBe(false);
    expect(node.mayVote(seenAt + MAX_LEASE)).toBe(true);
    await clock.advance(MAX_LEASE - 1);
    expect(server.noted).toBeNull();
    await clock.advance(1);
    expect(server.noted).toBe(`a ${MAX_LEASE}`);
    // Once the node is down, that is its reason not to respond.
    server.emit('close');
    expect(node.cause).toMatchObject({ message: 'The connection was closed.' });
  });

  it('continues counting if the connection is lost during the same run, and starts over with another run', async () => {
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
    ['votes immediately if another process has recorded this run', `a ${MAX_LEASE}`, true],
    ['counts if another run is recorded', `b ${MAX_LEASE}`, false],
    ['counts if a shorter maxLease was counted', `a ${MAX_LEASE - 1}`, false],
  ])('%s', async (_, noted, votes) => {
    server.noted = noted;
    await connect(infoOf('a'));
    expect(node.mayVote(clock.now())).toBe(votes);
  });

  it('never votes while its run is unknown', async () => {
    await connect('uptime_in_seconds:9999999\r\n');
    expect(node.mayVote(clock.now() + 100 * MAX_LEASE)).toBe(false);
  });

  it('leaves no timer', async () => {
    await connect(infoOf('a'));
    expect(clock.pendingTimers).toBeGreaterThan(0);
    // The timer of the last command ends without close().
    await clock.advance(1_000);
    expect(clock.pendingTimers).toBe(1);
    await node.close();
    expect(clock.pendingTimers).toBe(0);
  });
});

const RUN = new RedlockKeyLayout('lock').run;

const LONG_LEASE = 600_000;

const ONE_ATTEMPT = { wait: 0, lease: 60_000 };

const wallClock = makeServerClock();

// Each process counts on a fake clock, so a probation takes no time here.
describeUnless(wallClock ? undefined : NO_COMPILER)(
  'delayedRestart on nodes whose wall clocks are corrected just after the boot',
  () => {
    let quorum: Quorum;
    const started: StartedRedlock[] = [];
    const start = async () => {
      const clock = new FakeClock();
      // The timeout runs on the same clock, so a short one would pass while the test advances it.
      const terms = { maxLease: LONG_LEASE, delayedRestart: true, commandTimeout: '1h' };
      const redlock = await startRedlock({ ...quorum, ...terms }, { clock });
      started.push(redlock);
      return { clock, backend: redlock.backend, take: () => redlock.backend.acquire(request('order', ONE_ATTEMPT)) };
    };
    const noted = async () => {
      const [values, infos] = [
        await Promise.all(quorum.admins.map((admin) => admin.get(RUN))),
        await Promise.all(quorum.admins.map((admin) => admin.info('server'))),
      ];
      return values.every((value, node) => value === `${/^run_id:(\w+)/m.exec(infos[node]!)?.[1]} ${LONG_LEASE}`);
    };
    beforeAll(async () => {
      quorum = await startQuorum(3, { env: wallClock?.env ?? {} });
      wallClock?.step(24 * 3_600_000);
    });
    afterEach(async () => {
      for (const { backend } of started.splice(0)) await backend.close();
    });
    afterAll(async () => {
      await quorum.stop();
      wallClock?.remove();
    });

    it("a majority votes once one process has counted maxLease, whatever the nodes' uptime; other processes need not count again", async () => {
      const ann = await start();
      expect(await quorum.admins[0]!.info('server')).toMatch(/^uptime_in_seconds:8640\d/m);
      await expect(ann.take()).rejects.toBeInstanceOf(LockUnavailableError);
      await expect(ann.take()).rejects.toMatchObject({
        cause: { message: expect.stringContaining('cannot vote yet') as string },
      });
      await ann.clock.advance(LONG_LEASE - 1);
      await expect(ann.take()).rejects.toBeInstanceOf(LockUnavailableError);
      expect(await noted()).toBe(false);
      await ann.clock.advance(1);
      expect(await ann.take()).not.toBe('busy');
      await until(noted, 'the runs are recorded on the nodes');
      // This process's clock is at zero.
      const bob = await start();
      expect(await bob.take()).toBe('busy');
    });

    it('a restarted node is counted again', async () => {
      await Promise.all(quorum.servers.slice(0, 2).map((server) => server.crash()));
      const ann = await start();
      await expect(ann.take()).rejects.toBeInstanceOf(LockUnavailableError);
      await ann.clock.advance(LONG_LEASE);
      expect(await ann.take()).not.toBe('busy');
      await until(noted, 'the runs are recorded on the nodes');
    });
  },
);
