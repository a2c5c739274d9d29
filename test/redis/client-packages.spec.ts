import { jest } from '@jest/globals';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import type { RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { createClientPool, createSentinel as createSentinel5 } from 'redis5';

/** What is installed, and which of them was asked for connections. */
const installed = new Set<string>();
const asked: string[] = [];

/** A package that makes clients which connect to nothing, unless it is not installed. */
function mock(name: string, parts: object): void {
  jest.unstable_mockModule(name, () => {
    if (!installed.has(name)) throw new Error(`Cannot find package '${name}'`);
    return parts;
  });
}
class FakeRedis {
  constructor() {
    asked.push('ioredis');
  }

  duplicate(): object {
    const parts = ['connect', 'disconnect', 'call', 'subscribe', 'on'];
    return Object.fromEntries(parts.map((part) => [part, () => undefined]));
  }
}
mock('ioredis', { Redis: FakeRedis });
mock('redis', {
  createClient: (options: object) => {
    asked.push('redis');
    return { options, duplicate: () => ({}) };
  },
});

/** As in an application that starts now. */
async function optionsModule() {
  jest.resetModules();
  return import('../../lib/providers/redis/client/redis-options.js');
}

describe('the package that connects', () => {
  beforeEach(() => {
    installed.clear();
    asked.length = 0;
  });

  const connect = async (options: object) => {
    const { connectionsOf, readOptions } = await optionsModule();
    (await connectionsOf(readOptions(options as RedisLockProviderOptions), systemRandom()))();
  };

  it.each<[string, readonly string[], object, string]>([
    ['ioredis, where both are installed', ['ioredis', 'redis'], { url: 'redis://nowhere' }, 'ioredis'],
    ['node-redis, where ioredis is not installed', ['redis'], { url: 'redis://nowhere' }, 'redis'],
    ['node-redis, where the options are its own', ['ioredis', 'redis'], { options: { socket: { port: 1 } } }, 'redis'],
    [
      'node-redis, where the options have a url',
      ['ioredis', 'redis'],
      { options: { url: 'redis://nowhere' } },
      'redis',
    ],
  ])('is %s', async (_, packages, options, expected) => {
    for (const each of packages) installed.add(each);
    await connect(options);
    expect(asked).toEqual([expected]);
  });

  it('is named, and the other one, where neither is installed', async () => {
    await expect(connect({ url: 'redis://nowhere' })).rejects.toThrow(
      /needs the "ioredis" or "redis" package.*npm install ioredis/,
    );
  });
});

describe('a client that gives no connections is refused with what to do', () => {
  it.each<[string, unknown, RegExp]>([
    ['a pool of node-redis', createClientPool(), /cannot be duplicated. Pass an ioredis or redis client/],
    [
      'a Sentinel client of node-redis 5',
      createSentinel5({ name: 'locks', sentinelRootNodes: [{ host: 'localhost', port: 1 }] }),
      /cannot be duplicated.* client options as "options"/,
    ],
    ['something else', { get: () => undefined }, /an object, cannot be duplicated/],
  ])('%s', async (_, client, message) => {
    const { readOptions } = await optionsModule();
    expect(() => readOptions({ client } as RedisLockProviderOptions)).toThrow(message);
  });
});
