import { EventEmitter } from 'node:events';
import { jest } from '@jest/globals';
import IoredisMock from 'ioredis-mock';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { LockConfigError } from '../../lib/api/errors.js';
import { silentLogger } from '../../lib/api/logger.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import {
  RedisLockProvider,
  type RedisLockProviderOptions,
  type RedisServerOptions,
} from '../../lib/providers/redis/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { redisForTests } from './seam.js';

/** Each of its methods is a function of Jest that gives nothing, as after `jest.mock('ioredis')`. */
function automock(names: readonly string[], parts: object = {}): object {
  return { ...Object.fromEntries(names.map((name) => [name, jest.fn()])), ...parts };
}

const METHODS = ['connect', 'disconnect', 'destroy', 'call', 'sendCommand', 'subscribe', 'on', 'nodes'];
const everything: object = new Proxy(jest.fn(), { get: () => () => everything, has: () => true });
const { proxy: revoked, revoke } = Proxy.revocable({}, {});
revoke();

/** Says that it is ready, and answers nothing. */
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
  ['a Cluster of ioredis-mock', () => new IoredisMock.Cluster([{ host: 'localhost', port: 1 }])],
  ['a mock whose duplicate() gives nothing', () => automock([...METHODS, 'duplicate'])],
  ['a mock of a Cluster', () => automock([...METHODS, 'duplicate'], { isCluster: true })],
  ['a mock of node-redis', () => automock([...METHODS, 'duplicate', 'withTypeMapping'])],
  ['a mock of a Cluster of node-redis', () => automock([...METHODS, 'duplicate', 'withTypeMapping'], { masters: [] })],
  ['a mock of a Sentinel of node-redis', () => automock([...METHODS, 'duplicate', 'withTypeMapping', 'getMasterNode'])],
  ['a mock that is its own duplicate', () => automock(METHODS, { duplicate: () => automock(METHODS) })],
  ['one whose duplicate is a promise', () => ({ duplicate: () => Promise.resolve(new Mute()) })],
  ['one that is ready, and answers no command', () => ({ duplicate: () => new Mute() })],
  [
    'one whose duplicate() throws',
    () => ({
      duplicate: () => {
        throw new TypeError('no duplicate');
      },
    }),
  ],
  ['a proxy that answers everything', () => everything],
  ['an object that does', () => new Proxy({}, { get: () => jest.fn(), has: () => true })],
  ['a proxy that was revoked', () => revoked],
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
  ['the class', () => Redis],
  ['a promise of a client', () => Promise.resolve(automock(METHODS))],
  ['a text', () => 'redis://localhost'],
];

describe('what is not a client of Redis', () => {
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

  it.each(NOT_CLIENTS)('fails the boot with what to do: %s', async (_, make) => {
    const options = { client: make() } as RedisLockProviderOptions;
    const outcome = await boot(() => new RedisLockProvider(options)).catch((error: unknown) => error);
    expect(outcome).toBeInstanceOf(LockConfigError);
    expect(String(outcome)).toMatch(/cannot be duplicated. Pass a client of ioredis or redis/);
    const nodes = [1, 2, 3].map(() => ({ client: make() }) as RedisServerOptions);
    await expect(boot(() => new RedlockLockProvider({ nodes, maxLease: '1m' }))).rejects.toThrow(LockConfigError);
    // What is thrown in a callback is not caught by the boot.
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(uncaught).toEqual([]);
  });

  it('names the remedy for a mock', async () => {
    const boots = boot(() => new RedisLockProvider({ client: new IoredisMock() }));
    await expect(boots).rejects.toThrow(/In tests, use MemoryLockProvider/);
  });
});

describe('what wraps a client of Redis', () => {
  const redis = redisForTests();

  it.each<[string, () => object]>([
    ['a proxy of ioredis', () => new Redis(redis.server.url, { lazyConnect: true })],
    ['a proxy of node-redis', () => createClient({ url: redis.server.url })],
  ])('works like it: %s', async (_, make) => {
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
