import { describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { Redis as Redis5 } from 'ioredis5';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { type RedisClient, RedisLockProvider, type RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { backendOf, contextFor, granted, RELEASE, request, startBackend, until } from './seam.js';
import { direct } from '../direct-backend.js';

describe('the options of RedisLockProvider', () => {
  it('takes a client of ioredis 5 and of ioredis 6, by their types and at work', async () => {
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
      await until(async () => (await one.backend.inspect('k'))?.waiters === 1, 'it waits');
      expect(await one.backend.release(holder, RELEASE)).toBe('released');
      expect(await two.backend.release(granted(await waiter), RELEASE)).toBe('released');
      await one.backend.close();
      await two.backend.close();
      // The application's own client is as it was.
      expect(await client.ping()).toBe('PONG');
      client.disconnect();
    }
    await server.stop();
  });

  it('connects with the options of a client, and to nothing before connect()', async () => {
    const server = await startRedisServer({ args: ['--requirepass', 'secret'] });
    const { backend } = await startBackend({ options: { port: server.port, password: 'secret' } });
    granted(await backend.acquire(request('k')));
    await backend.close();
    await backendOf({ url: `redis://127.0.0.1:${server.port}` }).close();
    await server.stop();
  });

  it('serves any number of applications with one provider, at the same time and one after the other', async () => {
    const server = await startRedisServer();
    const provider = new RedisLockProvider({ url: server.url });
    const applications = [
      direct(provider.createBackend(contextFor([]))),
      direct(provider.createBackend(contextFor([]))),
    ] as const;
    await Promise.all(applications.map((backend) => backend.connect()));
    const held = granted(await applications[0].acquire(request('k')));
    expect(await applications[1].acquire(request('k', { wait: 0 }))).toBe('busy');
    expect(await applications[0].release(held, RELEASE)).toBe('released');
    await applications[0].close();
    // The other one keeps its connections, and a third one has its own.
    granted(await applications[1].acquire(request('other')));
    const third = direct(provider.createBackend(contextFor([])));
    await third.connect();
    granted(await third.acquire(request('k')));
    await Promise.all([applications[1].close(), third.close()]);
    await server.stop();
  });

  it('answers that Redis cannot be reached when it is closed while it connects', async () => {
    const backend = backendOf({ url: 'redis://127.0.0.1:1' });
    const connected = backend.connect().catch((error: unknown) => error);
    await backend.close();
    expect(await connected).toBeInstanceOf(LockUnavailableError);
    await expect(backend.acquire(request('k'))).rejects.toMatchObject({ sent: false });
  });

  it.each<[string, unknown]>([
    ['nothing', {}],
    ['two of them', { url: 'redis://localhost', client: new Redis({ lazyConnect: true }) }],
    ['text that is not a URL', { url: 'localhost' }],
    ['a client that is none', { client: {} }],
    ['a silence that is too short', { url: 'redis://localhost', commandTimeout: 1 }],
    ['a client that is not there', { client: null }],
    ['a list of URLs', { url: ['redis://localhost'] }],
    ['options that are none', { options: 'localhost' }],
    ['options that are not there', { options: null }],
    ['a Cluster without nodes', { cluster: [] }],
    ['a Cluster with a node that is not there', { cluster: [undefined] }],
    ['a Cluster with a node without a name', { cluster: [''] }],
    ['a Cluster with a node whose host is misspelled', { cluster: [{ hots: 'c1', port: 6379 }] }],
    ['a Cluster with a node whose port is a text', { cluster: [{ host: 'c1', port: '6379' }] }],
    ['half a replica', { url: 'redis://localhost', waitReplicas: 0.5 }],
  ])('refuses %s', (_, options) => {
    expect(() => new RedisLockProvider(options as RedisLockProviderOptions)).toThrow(LockConfigError);
  });

  const ENCODED = /If the user or password contains a space or one of .*encodeURIComponent\(\)\.$/;
  it.each<[string, string, RegExp]>([
    ['a database without a number', 'redis://localhost:6379/abc', /is not a database number: write redis:/],
    ['two databases', 'redis://localhost/1/2', /is not a database number/],
    ['a password with a hash sign', 'redis://:hunter#2@localhost', ENCODED],
    ['a password with a slash', 'redis://:hunter/2@localhost', ENCODED],
    ['a password of digits with a slash', 'redis://:12/hunter@localhost', ENCODED],
    ['a password with a percent sign', 'redis://:hunter%2@localhost', /would be misread by the client/],
    ['a fragment', 'redis://localhost:6379#hunter', /would be misread by the client/],
    ['a space before it', ' redis://:hunter@localhost', /begins or ends with a space or a line break: remove it\.$/],
    ['a line break behind it', 'redis://:hunter@localhost\n', /begins or ends with a space or a line break/],
    ['quotes around it', '"redis://:hunter@localhost"', /is not a URL: write it as redis:\/\/host:6379\.$/],
  ])('refuses a URL with %s, and shows none of it', (_, url, message) => {
    const make = (): unknown => new RedisLockProvider({ url });
    expect(make).toThrow(LockConfigError);
    expect(make).toThrow(message);
    expect(make).not.toThrow(/hunter/);
  });

  it.each([{ db: 'abc' }, { db: 1.5 }, { database: -1 }])('refuses %p as the database', (options) => {
    expect(() => new RedisLockProvider({ options })).toThrow(/"options\.\w+" is .*, but must be a database number/);
    const client = { options, duplicate: () => undefined } as unknown as Redis;
    expect(() => new RedisLockProvider({ client })).toThrow(/"client\.\w+" is .*, but must be a database number/);
  });

  it.each([
    'redis://localhost',
    'redis://localhost/',
    'redis://localhost/15',
    'rediss://u:p%40ss@localhost:1?family=6',
  ])('takes %s', (url) => {
    expect(() => new RedisLockProvider({ url })).not.toThrow();
  });

  it('never names a password', async () => {
    const backend = backendOf({ url: 'redis://user:hunter2@127.0.0.1:1' });
    const error = await backend.connect().catch((reason: unknown) => reason);
    expect(String(error)).toMatch(/cannot reach Redis/);
    expect(String(error) + String((error as Error).cause)).not.toContain('hunter2');
    await backend.close();
  });
});
