import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { jest } from '@jest/globals';
import type { Clock } from '../../lib/api/clock.js';
import { systemClock } from '../../lib/core/toolkit/clock.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import { LockConfigError } from '../../lib/api/errors.js';
import { MemcachedLockProvider } from '../../lib/providers/memcached/index.js';
import { ReconnectingConnection } from '../../lib/providers/memcached/reconnecting-connection.js';
import { DirectCaller } from '../../lib/provider-kit/direct-caller.js';
import { contextFor } from '../backend-context.js';
import { type MemcachedServer, startMemcached } from '../servers/memcached-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { until } from '../until.js';
import { itemKeyOf, secondsFor } from '../../lib/providers/memcached/lock-item.js';
import { readOptions } from '../../lib/providers/memcached/memcached-options.js';

let server: MemcachedServer;
let wire: TcpProxy;
let log: string[];
const running: LockManager[] = [];
jest.setTimeout(60_000);

beforeAll(async () => {
  server = await startMemcached();
});
afterAll(() => server.stop());
beforeEach(async () => {
  wire = await startTcpProxy(server.port);
  log = [];
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((locks) => locks.stop()));
  await wire.close();
});

const newNamespace = () => `test-${Math.random().toString(36).slice(2)}`;

/** Starts a process whose connection to the server can be cut. */
async function start(address = `127.0.0.1:${wire.port}`): Promise<LockManager> {
  const say = (message: string) => log.push(message);
  const locks = new LockManager({
    providers: { cache: new MemcachedLockProvider({ server: address, commandTimeout: '2s' }) },
    namespace: newNamespace(),
    shutdownGrace: 0,
    logger: { debug: () => {}, warn: say, error: say },
  });
  running.push(locks);
  await locks.start();
  return locks;
}

const aborted = (signal: AbortSignal) => until(() => signal.aborted, 'the lock was lost');

describe('a memcached that loses its items', () => {
  it('is noticed by the holder on reconnect after a restart, and others can lock', async () => {
    const locks = await start();
    const lock = await locks.acquire('order', { lease: '1h' });
    await server.crash();
    await aborted(lock.signal);
    expect(lock.isHeld()).toBe(false);
    expect(await lock.release()).toBe('lost');
    await (await locks.acquire('order')).release();
  });

  it('is noticed by the holder at its next renewal after a flush_all', async () => {
    const locks = await start();
    const lock = await locks.acquire('order', { lease: '1500ms' });
    expect(await server.command('flush_all')).toBe('OK');
    await aborted(lock.signal);
  });
});

describe('closing the backend', () => {
  async function startAlone() {
    const provider = new MemcachedLockProvider({ server: `127.0.0.1:${wire.port}`, commandTimeout: '2s' });
    const context = contextFor([], { namespace: newNamespace() });
    const backend = provider.createBackend(context);
    await backend.connect();
    const { instance } = context;
    return { backend, caller: new DirectCaller(provider, backend, [], instance, systemClock, systemRandom()) };
  }

  it('waits for the response to a check in progress', async () => {
    const { backend, caller } = await startAlone();
    await caller.take('order');
    wire.holdReplies();
    const answer = caller.ask('order');
    const stopped = backend.close();
    wire.passReplies();
    expect(await answer).toBe('busy');
    await stopped;
  });

  it('does not wait for a silent server, and reports that the command may have reached it', async () => {
    const { backend, caller } = await startAlone();
    wire.loseReplies();
    const answer = caller.ask('order');
    await Promise.all([
      backend.close(),
      expect(answer).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', sent: true }),
    ]);
    await expect(caller.ask('order')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', sent: false });
  });
});

it('reconnection backs off while a server accepts and immediately closes connections, until a command succeeds', async () => {
  const sockets = new Set<Socket>();
  let isSick = true;
  const sick = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('data', (data) => {
      const isGreeting = String(data).startsWith('mn');
      socket.write(isGreeting ? 'MN\r\n' : 'END\r\n', () => {
        if (isGreeting && isSick) socket.destroy();
      });
    });
  });
  await new Promise<void>((resolve) => sick.listen(0, '127.0.0.1', resolve));
  const { port } = sick.address() as AddressInfo;
  // Pauses are recorded and skipped. The timers of commands have a different length.
  const commandTimeout = 12_345;
  const pauses: number[] = [];
  const clock: Clock = {
    ...systemClock,
    setTimer: (callback, delay) => {
      if (delay !== commandTimeout) pauses.push(delay);
      return systemClock.setTimer(callback, delay === commandTimeout ? delay : 0);
    },
  };
  const connection = new ReconnectingConnection(
    contextFor([], { clock, random: { id: () => '', fraction: () => 1 } }),
    { host: '127.0.0.1', port, commandTimeout },
  );
  try {
    await connection.open();
    await until(() => pauses.length >= 7, 'it paused seven times');
    expect(pauses.slice(0, 7)).toEqual([50, 100, 200, 400, 800, 1_000, 1_000]);
    isSick = false;
    await until(
      () =>
        connection
          .use((server) => server.statistics())
          .then(
            () => true,
            () => false,
          ),
      'it executed a command',
    );
    pauses.length = 0;
    for (const socket of sockets) socket.destroy();
    await until(() => pauses.length > 0, 'it paused');
    expect(pauses[0]).toBe(50);
  } finally {
    connection.close();
    await new Promise((resolve) => {
      sick.close(resolve);
      for (const socket of sockets) socket.destroy();
    });
  }
});

describe('a lost response', () => {
  it('to an add makes the next request find its own lock', async () => {
    const locks = await start();
    wire.loseReplies();
    const lock = locks.acquire('order', { wait: '1m' });
    await until(async () => (await server.keys()).some((key) => key.endsWith(':order')), 'the server granted the lock');
    wire.passReplies();
    const held = await lock;
    expect(held.isHeld()).toBe(true);
    expect(await held.release()).toBe('released');
  });

  it('to a release leads to retries until the key is free', async () => {
    const locks = await start();
    const lock = await locks.acquire('order');
    wire.loseReplies();
    expect(await lock.release()).toBe('pending');
    wire.passReplies();
    const next = await locks.acquire('order', { wait: '1m' });
    expect(next.isHeld()).toBe(true);
    await next.release();
  });

  it('that was cut in half does not spill over into the next connection', async () => {
    const locks = await start();
    for (let round = 0; round < 20; round += 1) {
      const attempts = ['a', 'b', 'c'].map((key) => locks.acquire(key, { wait: '1m' }));
      if (round % 2) await Promise.resolve();
      wire.cut();
      for (const lock of await Promise.all(attempts)) expect(await lock.release()).not.toBe('lost');
    }
  });
});

it('a connection dropped by a NAT is replaced for a call with wait: 0', async () => {
  const locks = await start();
  wire.drop();
  expect((await locks.tryAcquire('order'))?.isHeld()).toBe(true);
});

it('a call with wait: 0 does not fail because its connection was just closed', async () => {
  const locks = await start();
  let isLost = false;
  locks.events.on('unavailable', () => (isLost = true));
  wire.cut();
  await until(() => isLost, 'the closed connection was noticed');
  expect((await locks.tryAcquire('order'))?.isHeld()).toBe(true);
});

describe('the diagnostics at boot', () => {
  it('report that locks are lost by a restart and by eviction', async () => {
    await start();
    expect(log.join()).toContain('loses all locks when it restarts or is flushed, and any lock when it evicts items');
  });

  it('report evicted items, except on a server that runs with -M', async () => {
    const small = await startMemcached({ args: ['-m', '8'] });
    const strict = await startMemcached({ args: ['-M'] });
    try {
      const filler = 'x'.repeat(500_000);
      for (let item = 0; item < 40; item += 1)
        await small.command(`set filler:${item} 0 0 ${filler.length}\r\n${filler}`);
      await start(small.address);
      expect(log.join()).toMatch(/has evicted \d+ items/);
      log = [];
      await start(strict.address);
      expect(log.join()).not.toContain('evict');
    } finally {
      await Promise.all([small.stop(), strict.stop()]);
    }
  });
});

it('a server that requires authentication is rejected at startup', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'lock-memcached-'));
  await writeFile(join(folder, 'accounts'), 'app:secret\n');
  const closed = await startMemcached({ args: ['-Y', join(folder, 'accounts')] });
  try {
    const starting = start(`127.0.0.1:${closed.port}`);
    await expect(starting).rejects.toBeInstanceOf(LockConfigError);
    await expect(starting).rejects.toMatchObject({ refused: true, provider: 'cache' });
    await expect(starting).rejects.toThrow(
      /requires authentication \(CLIENT_ERROR unauthenticated.*without authentication/,
    );
  } finally {
    await closed.stop();
    await rm(folder, { recursive: true });
  }
});

// Fixed results, because processes of two versions must find each other's locks.
describe('the name of an item', () => {
  it.each([
    ['order:42', 'shop:order:42'],
    ['a%20b/c', 'shop:a%20b/c'],
    ['', 'shop:#47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU'],
    ['#', 'shop:#ne-ZbLHqh-WWtsrczKODmjUumdnOB-Y1zbI584yilPg'],
    ['a b', 'shop:#h4fMnf0CFrqHZE2QKepVI-VfEDmrXap6hhhmU2qKI_s'],
    ['é', 'shop:#Y-PIB_k_ZpomJfN-5nNybDbvPpm2t9sCyRC-JQh-D5w'],
    ['x'.repeat(161), 'shop:#vY7tPUf5EFgj-ulcsBtLLKT9beiZfUfHcHIOYao3b6s'],
  ])('never changes: %j', (key, name) => {
    expect(itemKeyOf('shop', key)).toBe(name);
  });

  it('fits into 250 bytes without spaces and control characters, whatever the key', () => {
    for (const key of ['\0', '\r\nflush_all\r\n', ' ', '\ud800', '😀'.repeat(500), 'x'.repeat(160)]) {
      expect(itemKeyOf('n'.repeat(64), key)).toMatch(/^[!-~]{1,250}$/);
    }
  });
});

describe('the expiry time of an item', () => {
  it('is two seconds longer than the trusted lease', () => {
    expect([1, 1_000, 1_001, 30_000].map(secondsFor)).toEqual([3, 3, 4, 32]);
  });

  it('is rejected if memcached would interpret it as an absolute time', () => {
    const thirtyDays = 30 * 24 * 60 * 60 * 1_000;
    expect(secondsFor(thirtyDays - 2_000)).toBe(2_592_000);
    expect(() => secondsFor(thirtyDays)).toThrow(LockConfigError);
  });
});

describe('the server option', () => {
  it.each([
    ['cache', 'cache', 11211],
    ['10.0.0.1:11212', '10.0.0.1', 11212],
    ['[::1]:1', '::1', 1],
  ])('is parsed into host and port: %s', (server, host, port) => {
    expect(readOptions({ server })).toMatchObject({ host, port, commandTimeout: 2_000 });
  });

  it.each([
    undefined as never,
    null as never,
    ['cache'] as never,
    '',
    'a b',
    'cache:0',
    'cache:99999',
    'memcached://cache',
    '::1',
    'a:1,b:1',
  ])('rejects "%s"', (server) => {
    expect(() => readOptions({ server })).toThrow(LockConfigError);
    expect(() => readOptions({ server })).toThrow('"server"');
  });
});
