import { expect, jest } from '@jest/globals';
import { Redis } from 'ioredis';
import { readFile } from 'node:fs';
import { EventEmitter, once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { nextTick } from 'node:process';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../../lib/api/clock.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import type { RedisConnection } from '../../lib/providers/redis/client/redis-connection.js';
import { ClusterServers } from '../../lib/providers/redis/cluster-servers.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { LOCK_SCRIPT } from '../../lib/providers/redis/lua/lock-script.js';
import { RedisServer, type ServerSettings } from '../../lib/providers/redis/redis-server.js';
import type { RedisBackend } from '../../lib/providers/redis/redis-backend.js';
import { FakeClock } from '../../lib/testing/index.js';
import { InterleavedNetwork } from './interleaved-network.js';
import { IOREDIS, NODE_REDIS, NODE_REDIS_5 } from './client-libraries.js';
import { contextFor } from './seam.js';
import {
  backendOf,
  granted,
  RELEASE,
  request,
  type StartedBackend,
  startBackend,
  type TestRequest,
  until,
  untilAnswered,
  redisForTests,
  twoProcesses,
  leave,
  waitersAre,
} from './seam.js';
import type { DirectBackend } from '../direct-backend.js';

const shared = { mode: 'shared' } as const;

describe.each([IOREDIS, NODE_REDIS, NODE_REDIS_5])('a silent, lost or slow connection, with %s', (library) => {
  const redis = redisForTests();
  const processes = twoProcesses(redis, library);

  const up = async ({ backend }: StartedBackend) => {
    await until(async () => (await backend.inspect('nothing').catch(() => 'down')) === null, 'the connection is back');
  };
  /** Returns how many times the script was called since RESETSTAT, including failed calls. */
  const calls = async () =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.admin.info('commandstats'))?.[1] ?? 0);

  it('fails at startup if an address accepts connections and never responds', async () => {
    const sockets: Socket[] = [];
    const mute = createServer((socket) => sockets.push(socket)).listen(0, '127.0.0.1');
    await once(mute, 'listening');
    const url = `redis://127.0.0.1:${(mute.address() as AddressInfo).port}`;
    const backend = backendOf({ ...library.server(url), commandTimeout: 200 });
    try {
      let outcome: unknown;
      backend.connect().then(
        () => (outcome = 'started'),
        (error: unknown) => (outcome = error),
      );
      await until(() => outcome !== undefined, 'connect() has settled');
      expect(outcome).toBeInstanceOf(LockUnavailableError);
    } finally {
      await backend.close();
      mute.close();
      for (const socket of sockets) socket.destroy();
    }
  });

  it('discards what a server replies on a connection that was given up', async () => {
    const { backend, events } = await startBackend({ ...library.server(redis.server.url), commandTimeout: 300 });
    await backend.inspect('nothing');
    redis.server.signal('SIGSTOP');
    const attempt = request('k', { wait: 0 });
    const answer = backend.acquire(attempt).catch((error: unknown) => error);
    await until(() => events.some(({ type }) => type === 'unavailable'), 'the connection is given up');
    redis.server.signal('SIGCONT');
    // The server executes what it had not read yet, and replies on the half-closed connection.
    expect(await answer).toBeInstanceOf(LockUnavailableError);
    await untilAnswered(() => backend.release(attempt, RELEASE));
    await backend.close();
  });

  it('reconnects if the reply to the handshake was lost', async () => {
    const before = processes.proxy.connections;
    processes.proxy.loseReplies();
    processes.proxy.cut();
    await until(() => processes.proxy.connections >= before + 4, 'both connections are given up and reopened');
    processes.proxy.passReplies();
    await up(processes.shaky);
  });

  it('leaves the queue even if neither the request nor the first release was answered', async () => {
    const reader = granted(await processes.steady.backend.acquire(request('k', shared)));
    const writer = request('k');
    processes.proxy.loseReplies();
    const lost = processes.shaky.backend.acquire(writer);
    await waitersAre(processes.steady.backend, 'k', 1);
    processes.proxy.refuse();
    await expect(lost).rejects.toThrow(LockUnavailableError);
    expect(await processes.shaky.backend.release(writer, RELEASE)).toBe('unknown');
    processes.proxy.passReplies();
    processes.proxy.admit();
    await up(processes.shaky);
    expect(await processes.shaky.backend.release(writer, RELEASE)).toBe('lost');
    await waitersAre(processes.steady.backend, 'k', 0);
    const behind = granted(await processes.shaky.backend.acquire(request('k', { ...shared, wait: 0 })));
    expect(behind.fencingToken).toBe(reader.fencingToken);
  });

  it('leaves no waiter behind when a request with an unknown outcome is retried without waiting', async () => {
    granted(await processes.steady.backend.acquire(request('k')));
    const ask = request('k');
    processes.proxy.loseReplies();
    const lost = processes.shaky.backend.acquire(ask);
    await waitersAre(processes.steady.backend, 'k', 1);
    processes.proxy.passReplies();
    processes.proxy.cut();
    await expect(lost).rejects.toThrow(LockUnavailableError);
    await up(processes.shaky);
    let answer: unknown;
    Object.assign(ask, { wait: 0 });
    void processes.shaky.backend.acquire(ask).then((outcome) => (answer = outcome));
    await until(() => answer !== undefined, 'the retry is answered');
    expect(answer).toBe('busy');
    await waitersAre(processes.steady.backend, 'k', 0);
  });

  it('keeps a healthy connection after the event loop was blocked for longer than commandTimeout', async () => {
    const { backend, events } = await startBackend({ ...library.server(redis.server.url), commandTimeout: 1_000 });
    const grant = granted(await backend.acquire(request('k')));
    // In an I/O callback: timers run next, and only then is what the sockets have received.
    const outcome = await new Promise((resolve, reject) => {
      readFile(fileURLToPath(import.meta.url), () => {
        backend.release(grant, RELEASE).then(resolve, reject);
        // After the release was sent at the end of the tick.
        nextTick(() => {
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4_000);
        });
      });
    });
    expect(outcome).toBe('released');
    expect(await backend.inspect('k')).toBeNull();
    expect(events).toEqual([]);
    await backend.close();
  });

  describe('when the server has forgotten the script', () => {
    let time: FakeClock;
    let slow: StartedBackend;

    // The clock stands still unless advanced: meanwhile, nothing is polled and no connection is given up.
    beforeEach(async () => {
      time = new FakeClock();
      slow = await startBackend(library.server(`redis://127.0.0.1:${processes.proxy.port}`), { clock: time });
      await slow.backend.inspect('nothing');
    });
    afterEach(async () => {
      processes.proxy.passReplies();
      await slow.backend.close();
    });

    const flush = async () => {
      await redis.admin.script('FLUSH');
      await redis.admin.config('RESETSTAT');
      processes.proxy.holdReplies();
    };

    it('does not resend a request that was released meanwhile', async () => {
      await flush();
      const ask = request('k');
      const answer = slow.backend.acquire(ask);
      await until(async () => (await calls()) === 1, 'the request was refused');
      await redis.admin.script('LOAD', LOCK_SCRIPT.text);
      const released = slow.backend.release(ask, RELEASE);
      await until(async () => (await calls()) === 2, 'the release was executed');
      processes.proxy.passReplies();
      expect(await answer).toBe('busy');
      expect(await released).toBe('lost');
      // On the same connection, so after anything that was resent.
      expect(await slow.backend.inspect('k')).toBeNull();
    });

    it('does not resend the poll of a waiter that has left meanwhile', async () => {
      granted(await processes.steady.backend.acquire(request('k')));
      const ask = request('k');
      const answer = slow.backend.acquire(ask);
      await until(() => slow.events.some(({ type }) => type === 'waiting'), 'the waiter is queued');
      await flush();
      await time.advance(1_000);
      await until(async () => (await calls()) === 1, 'the poll was refused');
      await redis.admin.script('LOAD', LOCK_SCRIPT.text);
      const released = leave(slow.backend, ask);
      expect(await answer).toBe('busy');
      await until(async () => (await calls()) === 2, 'the release was executed');
      processes.proxy.passReplies();
      // This is answered after the refusal, so the next command runs after anything that the refusal caused to be
      // sent.
      await slow.backend.inspect('k');
      expect(await released).toBe('lost');
      expect(await slow.backend.inspect('k')).toMatchObject({ holders: 1, waiters: 0 });
    });
  });
});

describe('messages and connections, step by step', () => {
  const redis = redisForTests();
  let listener: Redis;
  let time: FakeClock;
  let wire: InterleavedNetwork;
  let backend: DirectBackend<RedisBackend>;
  let other: StartedBackend;

  const settle = () => new Promise<void>((resolve) => setImmediate(() => setImmediate(resolve)));
  const drain = async () => {
    await settle();
    while (wire.requests.length + wire.replies.length > 0) {
      await wire.execute();
      wire.answer();
      await settle();
    }
    await wire.collect();
  };

  beforeEach(async () => {
    time = new FakeClock();
    listener = new Redis(redis.server.url);
    wire = new InterleavedNetwork(redis.admin, listener);
    backend = backendOf({ client: wire.client, commandTimeout: '1h' }, { clock: time });
    await wire.carry(backend.connect());
    other = await startBackend({ url: redis.server.url }, { clock: time });
  });
  afterEach(async () => {
    void backend.close();
    wire.cut();
    await settle();
    await other.backend.close();
    listener.disconnect();
  });

  /** Expects the request to fail and to leave nothing behind, whatever the server executes late. */
  const expectUnanswered = async (ask: TestRequest, answer: Promise<unknown>) => {
    await expect(answer).rejects.toThrow(LockUnavailableError);
    await drain();
    const released = backend.release(ask, RELEASE);
    await drain();
    expect(await released).toBe('lost');
    while (wire.late.length > 0) await wire.executeLate();
    expect(await other.backend.inspect('k')).toBeNull();
  };
  const queue = async () => {
    const [key] = await redis.admin.keys('lock:*}q');
    return key === undefined
      ? []
      : (await redis.admin.zrange(key, '0', '-1')).map((member) => member.replace(/^.*:/, ''));
  };

  it.each([
    ['text', () => 'hello'],
    ['nothing', () => ''],
    ['a number', () => '1'.repeat(40)],
    ['only a token', (holder: string) => `${'1'.repeat(16)}:${holder}`],
    ['garbage instead of the time', (holder: string) => `${'1'.repeat(16)}${'x'.repeat(16)}3000:${holder}`],
    ['garbage instead of the provisional lease', (holder: string) => `${'1'.repeat(32)}x:${holder}`],
    ['garbage instead of the token', (holder: string) => `${'x'.repeat(16)}${'1'.repeat(16)}3000:${holder}`],
  ])('ignores a message on its channel that is not a grant: %s', async (_, text) => {
    const held = granted(await other.backend.acquire(request('k')));
    const ask = request('k');
    let answer: unknown;
    void backend.acquire(ask).then((outcome) => (answer = outcome));
    await drain();
    wire.messages.push({ channel: 'lock', text: text(ask.id) });
    expect(() => {
      wire.hear();
    }).not.toThrow();
    await settle();
    expect(answer).toBeUndefined();
    expect(wire.requests).toEqual([]);
    await other.backend.release(held, RELEASE);
    await wire.collect();
    wire.hear();
    await settle();
    expect(answer).toMatchObject({ holder: ask.id });
  });

  it('leaves the queue with its release if a message granted it the lock during a poll', async () => {
    const held = granted(await other.backend.acquire(request('k')));
    const waiter = backend.acquire(request('k'));
    await drain();
    const next = other.backend.acquire(request('k'));
    await until(async () => (await queue()).length === 2, 'both processes wait');
    await other.backend.release(held, RELEASE);
    await wire.collect();
    await time.advance(1_000);
    await settle();
    expect(wire.requests).toHaveLength(1);
    wire.hear();
    const grant = granted(await waiter);
    // The poll is still in flight when the next process gets the lock, so it queues the request again.
    expect(await other.backend.forceRelease('k')).toBe(true);
    const last = granted(await next);
    const released = backend.release(grant, RELEASE);
    await drain();
    expect(await released).toBe('lost');
    expect(await queue()).toEqual([]);
    expect(await other.backend.release(last, RELEASE)).toBe('released');
    expect(await other.backend.inspect('k')).toBeNull();
  });

  it('does not date a message by what it knew before the connection was lost', async () => {
    const held = granted(await other.backend.acquire(request('k')));
    const ask = request('k');
    let answer: unknown = backend.acquire(ask);
    const lost = expect(answer).rejects.toThrow(LockUnavailableError);
    await drain();
    await other.backend.release(held, RELEASE);
    await wire.collect();
    wire.cut();
    await lost;
    await drain();
    // The core resends the request, and the message arrives before the reply.
    answer = undefined;
    void backend.acquire(ask).then((outcome) => (answer = outcome));
    wire.hear();
    await settle();
    expect(answer).toBeUndefined();
    await drain();
    expect(answer).toMatchObject({ key: 'k' });
  });

  it('fails a waiting request when its connection is lost, not at its next poll', async () => {
    granted(await other.backend.acquire(request('k')));
    let outcome: unknown;
    backend.acquire(request('k')).catch((error: unknown) => (outcome = error));
    await drain();
    wire.cut();
    await settle();
    expect(outcome).toBeInstanceOf(LockUnavailableError);
  });

  it('admits no followers under a grant that it finds instead of the grant it meant to confirm', async () => {
    const held = granted(await other.backend.acquire(request('k')));
    const waiter = backend.acquire(request('k', { callers: 5 }));
    await drain();
    const next = other.backend.acquire(request('k'));
    await until(async () => (await queue()).length === 2, 'both processes wait');
    await other.backend.release(held, RELEASE);
    await wire.collect();
    // The next process gets the lock before the grant's message arrives, and a poll has queued the request again.
    await time.advance(1_000);
    await settle();
    expect(await other.backend.forceRelease('k')).toBe(true);
    const last = granted(await next);
    await wire.execute();
    wire.answer();
    await time.advance(4_000);
    wire.hear();
    await settle();
    // The message came too late to be trusted, so the grant must be confirmed, after the next second's poll.
    expect(wire.requests.at(-1)?.args).toContain('C');
    while (wire.requests.length > 1) await wire.execute();
    // Another handoff precedes the confirmation of the first.
    expect(await other.backend.release(last, RELEASE)).toBe('released');
    await drain();
    expect(granted(await waiter)).toMatchObject({ key: 'k', followers: 0 });
  });

  it('admits no followers under a grant whose reply was lost, even if more callers have arrived since', async () => {
    const before = granted(await other.backend.acquire(request('k')));
    expect(await other.backend.release(before, RELEASE)).toBe('released');
    const ask = request('k');
    const unanswered = backend.acquire(ask);
    unanswered.catch(() => undefined);
    await settle();
    await wire.execute();
    wire.cut();
    await expect(unanswered).rejects.toThrow(LockUnavailableError);
    await drain();
    Object.assign(ask, { callers: 5 });
    const found = backend.acquire(ask);
    await drain();
    expect(granted(await found)).toMatchObject({ key: 'k', followers: 0 });
    expect(granted(await found).fencingToken).toBeGreaterThan(before.fencingToken ?? 0n);
  });

  it.each([
    ['keeps its subscription if it is alive', false, 0],
    ['resubscribes if it is silent', true, 1],
  ])('finds a grant whose message was lost, and %s', async (_, isSilent, times) => {
    const held = granted(await other.backend.acquire(request('k')));
    const waiter = backend.acquire(request('k'));
    await drain();
    await other.backend.release(held, RELEASE);
    await wire.collect();
    wire.loseMessages();
    wire.isSilent = isSilent;
    await time.advance(1_000);
    await drain();
    granted(await waiter);
    await time.advance(3_600_000);
    expect(wire.resubscriptions).toBe(times);
  });

  it('sends no request on a connection that has no id yet, which it could not kill', async () => {
    wire.cut();
    await settle();
    const ask = request('k');
    const answer = backend.acquire(ask);
    answer.catch(() => undefined);
    await settle();
    wire.cut();
    await expectUnanswered(ask, answer);
  });

  it('kills both connections if two are lost in a row', async () => {
    const ask = request('k');
    const answer = backend.acquire(ask);
    answer.catch(() => undefined);
    await settle();
    // The first is lost before the server has read the request, the second before it has read the command that kills
    // the first.
    wire.cut();
    await settle();
    wire.cut();
    await expectUnanswered(ask, answer);
  });
});

/** A connection to a master that has all slots. It changes its state only when the test emits an event. */
class ScriptedConnection extends EventEmitter implements RedisConnection {
  readonly disconnect = jest.fn();

  connect(): Promise<void> {
    return Promise.resolve();
  }

  call(command: string): Promise<unknown> {
    return Promise.resolve(command === 'cluster' ? [[0, 16_383, ['127.0.0.1', 1]]] : 'id=1 addr=127.0.0.1:2 db=0');
  }

  subscribe(): Promise<unknown> {
    return Promise.resolve();
  }

  ssubscribe(): Promise<unknown> {
    return Promise.resolve();
  }
}

describe('connections that change their state one by one', () => {
  const settle = () => new Promise<void>((resolve) => setImmediate(() => setImmediate(resolve)));
  const listener = {
    onUp: jest.fn(),
    onDown: jest.fn(),
    onListening: jest.fn(),
    onMessage: jest.fn(),
    onNotice: jest.fn(),
  };
  const settingsWith = (clock: Clock, topology: ServerSettings['topology']): ServerSettings => {
    const { random, logger } = contextFor([]);
    return {
      ...{ clock, random, logger, topology, commandTimeout: 1_000 },
      ...{ layout: new KeyLayout('lock'), process: '0123456789ab', waitReplicas: 1 },
    };
  };

  it('drops attempts to connect that may still lead to the old server when the command connection reaches the new one', async () => {
    const made: ScriptedConnection[] = [];
    const connect = () => {
      const connection = new ScriptedConnection();
      made.push(connection);
      return connection;
    };
    const server = new RedisServer(settingsWith(new FakeClock(), 'server'), connect, listener);
    server.connect().catch(() => undefined);
    const [commands, ...others] = made as [ScriptedConnection, ...ScriptedConnection[]];
    expect(others).toHaveLength(2);
    for (const connection of made) connection.emit('ready');
    await settle();
    for (const connection of made) connection.emit('close');
    for (const connection of others) {
      connection.emit('connect');
      expect(connection.disconnect).not.toHaveBeenCalled();
    }
    commands.emit('ready');
    await settle();
    expect(commands.disconnect).not.toHaveBeenCalled();
    for (const { disconnect } of others) expect(disconnect.mock.calls).toEqual([[true]]);
    await server.close();
  });

  it('rereads the slot map soon after a subscription has ended, even if an earlier outage was long', async () => {
    const time = new FakeClock();
    const timers = jest.spyOn(time, 'setTimer');
    const pauses = () => timers.mock.calls.map(([, delay]) => delay);
    let isDown = true;
    const asked = { host: '127.0.0.1', port: 1 };
    const connectTo = () => {
      const connection = new ScriptedConnection();
      setImmediate(() => connection.emit('ready'));
      return connection;
    };
    const find = () =>
      isDown
        ? Promise.reject(new Error('down'))
        : Promise.resolve({ slots: [[0, 16_383, ['127.0.0.1', 1]]], asked, connectTo });
    const servers = new ClusterServers(() => Promise.resolve(find), settingsWith(time, 'cluster'), listener);
    await expect(servers.connect()).rejects.toThrow('down');
    while (!pauses().includes(1_000)) {
      await time.advance(1_000);
      await settle();
    }
    isDown = false;
    await until(async () => {
      await time.advance(1_000);
      await settle();
      return listener.onListening.mock.calls.length > 0;
    }, 'the process listens');
    await time.advance(1_000);
    await settle();
    timers.mockClear();
    servers.onRefused();
    expect(pauses()).toEqual([50]);
    await servers.close();
  });
});
