import { describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { Redis as Redis5 } from 'ioredis5';
import { LockConfigError } from '../../lib/api/errors.js';
import { type RedisClient, RedisLockProvider, type RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { granted, RELEASE, request, startProvider, until } from './seam.js';

describe('the options of RedisLockProvider', () => {
  it('takes a client of ioredis 5 and of ioredis 6, by their types and at work', async () => {
    const server = await startRedisServer();
    for (const client of [
      new Redis(server.url, { keyPrefix: 'app:' }),
      new Redis5(server.url, { keyPrefix: 'app:' }),
    ]) {
      const typed: RedisClient = client;
      const one = await startProvider({ client: typed });
      const two = await startProvider({ client: typed });
      const holder = granted(await one.provider.acquire(request('k')));
      const waiter = two.provider.acquire(request('k'));
      await until(async () => (await one.provider.inspect('k'))?.waiters === 1, 'it waits');
      expect(await one.provider.release(holder, RELEASE)).toBe('released');
      expect(await two.provider.release(granted(await waiter), RELEASE)).toBe('released');
      await one.provider.stop();
      await two.provider.stop();
      // The application's own client is as it was.
      expect(await client.ping()).toBe('PONG');
      client.disconnect();
    }
    await server.stop();
  });

  it('connects with the options of a client, and to nothing before its start', async () => {
    const server = await startRedisServer({ args: ['--requirepass', 'secret'] });
    const { provider } = await startProvider({ options: { port: server.port, password: 'secret' } });
    granted(await provider.acquire(request('k')));
    await provider.stop();
    const unstarted = new RedisLockProvider({ url: `redis://127.0.0.1:${server.port}` });
    await unstarted.stop();
    await server.stop();
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
    ['half a replica', { url: 'redis://localhost', waitReplicas: 0.5 }],
  ])('refuses %s', (_, options) => {
    expect(() => new RedisLockProvider(options as RedisLockProviderOptions)).toThrow(LockConfigError);
  });

  it('never names a password', async () => {
    const { provider } = await (async () => {
      const broken = new RedisLockProvider({ url: 'redis://user:hunter2@127.0.0.1:1' });
      return { provider: broken };
    })();
    const { contextFor } = await import('./seam.js');
    const error = await provider.start(contextFor([])).catch((reason: unknown) => reason);
    expect(String(error)).toMatch(/cannot reach Redis/);
    expect(String(error) + String((error as Error).cause)).not.toContain('hunter2');
    await provider.stop();
  });
});
