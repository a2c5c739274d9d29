import { jest } from '@jest/globals';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import type { RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { createClientPool, createSentinel as createSentinel5 } from 'redis5';

/** The packages that are installed, and the packages that created a client. */
const installed = new Set<string>();
const asked: string[] = [];

/** Mocks a package whose clients connect to nothing. It can't be imported unless it is installed. */
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

/** Loads the module as a freshly started application does. */
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
    ['ioredis if both are installed', ['ioredis', 'redis'], { url: 'redis://nowhere' }, 'ioredis'],
    ['node-redis if ioredis is not installed', ['redis'], { url: 'redis://nowhere' }, 'redis'],
    [
      'node-redis if the options are node-redis options',
      ['ioredis', 'redis'],
      { options: { socket: { port: 1 } } },
      'redis',
    ],
    ['node-redis if the options have a url', ['ioredis', 'redis'], { options: { url: 'redis://nowhere' } }, 'redis'],
  ])('is %s', async (_, packages, options, expected) => {
    for (const each of packages) installed.add(each);
    await connect(options);
    expect(asked).toEqual([expected]);
  });

  it('is named in the error, with its alternative, if neither is installed', async () => {
    await expect(connect({ url: 'redis://nowhere' })).rejects.toThrow(
      /needs the "ioredis" or "redis" package.*npm install ioredis/,
    );
  });
});

describe("refuses a client that can't provide connections, and says what to do", () => {
  it.each<[string, unknown, RegExp]>([
    ['a node-redis pool', createClientPool(), /cannot be duplicated. Pass an ioredis or redis client/],
    [
      'a node-redis 5 Sentinel client',
      createSentinel5({ name: 'locks', sentinelRootNodes: [{ host: 'localhost', port: 1 }] }),
      /cannot be duplicated.* client options as "options"/,
    ],
    ['an unrelated object', { get: () => undefined }, /an object, cannot be duplicated/],
  ])('%s', async (_, client, message) => {
    const { readOptions } = await optionsModule();
    expect(() => readOptions({ client } as RedisLockProviderOptions)).toThrow(message);
  });
});
