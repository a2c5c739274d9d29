import { jest } from '@jest/globals';
import { EventEmitter } from 'node:events';
import { Redis } from 'ioredis';
import IoredisMock from 'ioredis-mock';
import { Redis as Redis5 } from 'ioredis5';
import { createClient } from 'redis';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { silentLogger } from '../../lib/api/logger.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import {
  type RedisClient,
  RedisLockProvider,
  type RedisLockProviderOptions,
  type RedisServerOptions,
} from '../../lib/providers/redis/index.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { backendOf, granted, redisForTests, RELEASE, request, startBackend, waitersAre } from './seam.js';

describe('the options of RedisLockProvider', () => {
  it('accept ioredis 5 and ioredis 6 clients, by type and in use', async () => {
    const server = await startRedisServer();
    for (const client of [
      new Redis(server.url, { keyPrefix: 'app:' }),
      new Redis5(server.url, { keyPrefix: 'app:' }),
    ]) {
      const typed: RedisClient = client;
      const one = await startBackend({ client: typed });
      const two = await startBackend({ client: typed });
      const holder = granted(await one.backend.acquire(request('k')));
      const waiter = two.backend.acquire(request('k'));
      await waitersAre(one.backend, 'k', 1);
      expect(await one.backend.release(holder, RELEASE)).toBe('released');
      expect(await two.backend.release(granted(await waiter), RELEASE)).toBe('released');
      await one.backend.close();
      await two.backend.close();
      // The application's own client is unchanged.
      expect(await client.ping()).toBe('PONG');
      client.disconnect();
    }
    await server.stop();
  });

  it('accept client options, and connect to nothing before connect()', async () => {
    const server = await startRedisServer({ args: ['--requirepass', 'secret'] });
    const { backend } = await startBackend({ options: { port: server.port, password: 'secret' } });
    granted(await backend.acquire(request('k')));
    await backend.close();
    await backendOf({ url: `redis://127.0.0.1:${server.port}` }).close();
    await server.stop();
  });

  it('use node-redis for options with a url, because ioredis would connect to localhost', async () => {
    const server = await startRedisServer();
    const admin = new Redis(server.url);
    const { backend } = await startBackend({ options: { url: server.url } });
    granted(await backend.acquire(request('k')));
    expect(await admin.exists(new KeyLayout('lock').lockOf('k'))).toBe(1);
    await backend.close();
    admin.disconnect();
    await server.stop();
  });

  it('a backend that is closed while it connects fails as unavailable', async () => {
    const backend = backendOf({ url: 'redis://127.0.0.1:1' });
    const connected = backend.connect().catch((error: unknown) => error);
    await backend.close();
    expect(await connected).toBeInstanceOf(LockUnavailableError);
    await expect(backend.acquire(request('k'))).rejects.toMatchObject({ sent: false });
  });

  it.each<[string, unknown]>([
    ['nothing', {}],
    ['two sources', { url: 'redis://localhost', client: new Redis({ lazyConnect: true }) }],
    ['text that is not a URL', { url: 'localhost' }],
    ['an object that is not a client', { client: {} }],
    ['a commandTimeout that is too short', { url: 'redis://localhost', commandTimeout: 1 }],
    ['null as the client', { client: null }],
    ['a list of URLs', { url: ['redis://localhost'] }],
    ['text as the options', { options: 'localhost' }],
    ['null as the options', { options: null }],
    ['a Cluster without nodes', { cluster: [] }],
    ['a Cluster with an undefined node', { cluster: [undefined] }],
    ['a Cluster with an unnamed node', { cluster: [''] }],
    ['a Cluster with a misspelled host of a node', { cluster: [{ hots: 'c1', port: 6379 }] }],
    ['a Cluster with text as the port of a node', { cluster: [{ host: 'c1', port: '6379' }] }],
    ['half a replica', { url: 'redis://localhost', waitReplicas: 0.5 }],
  ])('reject %s', (_, options) => {
    expect(() => new RedisLockProvider(options as RedisLockProviderOptions)).toThrow(LockConfigError);
  });

  const ENCODED = /If the user or password contains a space or one of .*encodeURIComponent\(\)\.$/;
  it.each<[string, string, RegExp]>([
    ['a non-numeric database', 'redis://localhost:6379/abc', /is not a database number: write redis:/],
    ['two databases', 'redis://localhost/1/2', /is not a database number/],
    ['a password with a hash sign', 'redis://:hunter#2@localhost', ENCODED],
    ['a password with a slash', 'redis://:hunter/2@localhost', ENCODED],
    ['a password of digits with a slash', 'redis://:12/hunter@localhost', ENCODED],
    ['a password with a percent sign', 'redis://:hunter%2@localhost', /would be misread by the client/],
    ['a fragment', 'redis://localhost:6379#hunter', /would be misread by the client/],
    ['a leading space', ' redis://:hunter@localhost', /begins or ends with a space or a line break: remove it\.$/],
    ['a trailing line break', 'redis://:hunter@localhost\n', /begins or ends with a space or a line break/],
    ['quotes around it', '"redis://:hunter@localhost"', /is not a URL: write it as redis:\/\/host:6379\.$/],
  ])('reject a URL with %s, and print no part of it', (_, url, message) => {
    const make = (): unknown => new RedisLockProvider({ url });
    expect(make).toThrow(LockConfigError);
    expect(make).toThrow(message);
    expect(make).not.toThrow(/hunter/);
  });

  it.each([{ db: 'abc' }, { db: 1.5 }, { database: -1 }])('reject %p as the database', (options) => {
    expect(() => new RedisLockProvider({ options })).toThrow(/"options\.\w+" is .*, but must be a database number/);
    const client = { options, duplicate: () => undefined } as unknown as Redis;
    expect(() => new RedisLockProvider({ client })).toThrow(/"client\.\w+" is .*, but must be a database number/);
  });

  it.each([
    'redis://localhost',
    'redis://localhost/',
    'redis://localhost/15',
    'rediss://u:p%40ss@localhost:1?family=6',
  ])('accept %s', (url) => {
    expect(() => new RedisLockProvider({ url })).not.toThrow();
  });

  it('never print a password', async () => {
    const backend = backendOf({ url: 'redis://user:hunter2@127.0.0.1:1' });
    const error = await backend.connect().catch((reason: unknown) => reason);
    expect(String(error)).toMatch(/cannot reach Redis/);
    expect(String(error) + String((error as Error).cause)).not.toContain('hunter2');
    await backend.close();
  });
});

/** Returns an object whose methods are Jest functions that return undefined, as after `jest.mock('ioredis')`. */
function automock(names: readonly string[], parts: object = {}): object {
  return { ...Object.fromEntries(names.map((name) => [name, jest.fn()])), ...parts };
}

const METHODS = ['connect', 'disconnect', 'destroy', 'call', 'sendCommand', 'subscribe', 'on', 'nodes'];

const everything: object = new Proxy(jest.fn(), { get: () => () => everything, has: () => true });

const { proxy: revoked, revoke } = Proxy.revocable({}, {});

revoke();

/** A client that reports it is ready, and answers nothing. */
class Mute extends EventEmitter {
  connect = () => {
    this.emit('ready');
    return Promise.resolve();
  };
  disconnect = jest.fn();
  subscribe = jest.fn();
  call = jest.fn();
}

const NOT_CLIENTS: readonly [string, () => unknown][] = [
  ['ioredis-mock', () => new IoredisMock()],
  ['an ioredis-mock Cluster', () => new IoredisMock.Cluster([{ host: 'localhost', port: 1 }])],
  ['a mock whose duplicate() returns undefined', () => automock([...METHODS, 'duplicate'])],
  ['a mock of a Cluster', () => automock([...METHODS, 'duplicate'], { isCluster: true })],
  ['a mock of node-redis', () => automock([...METHODS, 'duplicate', 'withTypeMapping'])],
  ['a mock of a node-redis Cluster', () => automock([...METHODS, 'duplicate', 'withTypeMapping'], { masters: [] })],
  ['a mock of a node-redis Sentinel', () => automock([...METHODS, 'duplicate', 'withTypeMapping', 'getMasterNode'])],
  ['a mock whose duplicate is another mock', () => automock(METHODS, { duplicate: () => automock(METHODS) })],
  ['a client whose duplicate is a promise', () => ({ duplicate: () => Promise.resolve(new Mute()) })],
  ['a client that is ready but answers no command', () => ({ duplicate: () => new Mute() })],
  [
    'a client whose duplicate() throws',
    () => ({
      duplicate: () => {
        throw new TypeError('no duplicate');
      },
    }),
  ],
  ['a function proxy that accepts everything', () => everything],
  ['an object proxy that accepts everything', () => new Proxy({}, { get: () => jest.fn(), has: () => true })],
  ['a revoked proxy', () => revoked],
  [
    'a proxy that throws',
    () =>
      new Proxy(
        {},
        {
          get: () => {
            throw new TypeError('locked');
          },
        },
      ),
  ],
  [
    'a wrapper that passes no options on',
    () => ({ duplicate: () => new Redis(1, { retryStrategy: () => null }).on('error', () => undefined) }),
  ],
  ['the client class', () => Redis],
  ['a promise of a client', () => Promise.resolve(automock(METHODS))],
  ['a string', () => 'redis://localhost'],
];

describe('an object that is not a Redis client', () => {
  const uncaught: unknown[] = [];
  const listen = (error: unknown) => uncaught.push(error);
  beforeAll(() => {
    process.on('uncaughtException', listen).on('unhandledRejection', listen);
  });
  afterAll(() => {
    process.off('uncaughtException', listen).off('unhandledRejection', listen);
  });

  const boot = async (provider: () => RedisLockProvider | RedlockLockProvider): Promise<void> => {
    const locks = new LockManager({ providers: { redis: provider() }, logger: silentLogger });
    try {
      await locks.start();
    } finally {
      await locks.stop();
    }
  };

  it.each(NOT_CLIENTS)('fails the boot, and the error says what to do: %s', async (_, make) => {
    const options = { client: make() } as RedisLockProviderOptions;
    const outcome = await boot(() => new RedisLockProvider(options)).catch((error: unknown) => error);
    expect(outcome).toBeInstanceOf(LockConfigError);
    expect(String(outcome)).toMatch(/cannot be duplicated( \(.+\))?\. Pass an ioredis or redis client/);
    const nodes = [1, 2, 3].map(() => ({ client: make() }) as RedisServerOptions);
    await expect(boot(() => new RedlockLockProvider({ nodes, maxLease: '1m' }))).rejects.toThrow(LockConfigError);
    // The boot can't catch what a callback throws.
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(uncaught).toEqual([]);
  });

  it('fails with the reason that no client can be made', async () => {
    const options = { sentinels: [{ host: '127.0.0.1', port: 26_379 }] };
    const boots = boot(() => new RedisLockProvider({ options }));
    await expect(boots).rejects.toThrow(/cannot be duplicated \(Requires the name of master\)\. Pass/);
  });

  it('fails with the remedy for a mock', async () => {
    const boots = boot(() => new RedisLockProvider({ client: new IoredisMock() }));
    await expect(boots).rejects.toThrow(/In tests, use MemoryLockProvider/);
  });
});

describe('a wrapped Redis client', () => {
  const redis = redisForTests();

  it.each<[string, () => object]>([
    ['an ioredis proxy', () => new Redis(redis.server.url, { lazyConnect: true })],
    ['a node-redis proxy', () => createClient({ url: redis.server.url })],
  ])('works like the client: %s', async (_, make) => {
    const bound = { get: (target: object, name: string) => bind(target, Reflect.get(target, name) as unknown) };
    const client = new Proxy(make(), bound) as NonNullable<RedisLockProviderOptions['client']>;
    const locks = new LockManager({ providers: { redis: new RedisLockProvider({ client }) } });
    await locks.start();
    expect(await locks.withLock('k', () => 'done')).toBe('done');
    await locks.stop();
  });
});

function bind(target: object, value: unknown): unknown {
  return typeof value === 'function' ? (value.bind(target) as unknown) : value;
}
