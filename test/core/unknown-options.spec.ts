import { describe, expect, it } from '@jest/globals';
import { DataSource } from 'typeorm';
import { LockConfigError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { nearest } from '../../lib/core/toolkit/nearest.js';
import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { MemcachedLockProvider } from '../../lib/providers/memcached/index.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import {
  lockTablesSql,
  SqlAdvisoryLockProvider,
  SqlRowLockProvider,
  SqlVersionLockProvider,
} from '../../lib/providers/sql/index.js';
import {
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  TypeOrmVersionLockProvider,
} from '../../lib/providers/typeorm/index.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';

const url = 'postgres://app:secret@db/shop';
const node = { url: 'redis://redis' };
const nodes = [node, node, node];
const dataSource = new DataSource({ type: 'postgres' });

/** Makes it of a right source, with options that a program in JavaScript may give. */
const MAKERS: Readonly<Record<string, (options: object) => unknown>> = {
  RedisLockProvider: (options) => new RedisLockProvider({ ...node, ...options }),
  RedlockLockProvider: (options) => new RedlockLockProvider({ nodes, maxLease: '1m', ...options }),
  SqlRowLockProvider: (options) => new SqlRowLockProvider({ url, ...options }),
  SqlVersionLockProvider: (options) => new SqlVersionLockProvider({ url, ...options }),
  SqlAdvisoryLockProvider: (options) => new SqlAdvisoryLockProvider({ url, ...options }),
  TypeOrmRowLockProvider: (options) => new TypeOrmRowLockProvider({ dataSource, ...options }),
  TypeOrmVersionLockProvider: (options) => new TypeOrmVersionLockProvider({ dataSource, ...options }),
  TypeOrmAdvisoryLockProvider: (options) => new TypeOrmAdvisoryLockProvider({ dataSource, ...options }),
  ZooKeeperLockProvider: (options) => new ZooKeeperLockProvider({ connectString: 'zk1', ...options }),
  MemcachedLockProvider: (options) => new MemcachedLockProvider({ server: 'cache', ...options }),
  MemoryLockProvider: (options) => new MemoryLockProvider(options),
  CombinedLockProvider: (options) => new CombinedLockProvider({ providers: ['a', 'b'], ...options }),
  FailoverLockProvider: (options) => new FailoverLockProvider({ providers: ['a', 'b'], casStore: 'b', ...options }),
  'lockTablesSql()': (options) => lockTablesSql('postgres', options),
};

function messageOf(make: () => unknown): string {
  try {
    make();
  } catch (error) {
    expect(error).toBeInstanceOf(LockConfigError);
    return (error as Error).message;
  }
  return 'nothing was thrown';
}

describe('an option that does not exist is refused beside a right source, and the right spelling is named', () => {
  it.each(Object.entries(MAKERS))('%s: of the module, and of nobody', (owner, make) => {
    expect(() => make({})).not.toThrow();
    expect(messageOf(() => make({ nmespace: 'shop' }))).toBe(
      `${owner}: there is no option "nmespace": write "namespace" in the options of DistributedLockModule.`,
    );
    expect(messageOf(() => make({ quux: 1 }))).toMatch(
      new RegExp(
        `^${owner.replace('()', '\\(\\)')}: there is no option "quux": remove it\\. The options are ".+"(; .+)?\\.$`,
      ),
    );
  });

  it.each([
    ['RedisLockProvider', 'comandTimeout', 'commandTimeout'],
    ['RedisLockProvider', 'timeout', 'commandTimeout'],
    ['RedisLockProvider', 'waitreplicas', 'waitReplicas'],
    ['RedlockLockProvider', 'delayRestart', 'delayedRestart'],
    ['SqlRowLockProvider', 'maxConnection', 'maxConnections'],
    ['SqlVersionLockProvider', 'tabel', 'table'],
    ['SqlAdvisoryLockProvider', 'sesionGuard', 'sessionGuard'],
    ['TypeOrmRowLockProvider', 'syncronize', 'synchronize'],
    ['TypeOrmVersionLockProvider', 'commandtimeout', 'commandTimeout'],
    ['TypeOrmAdvisoryLockProvider', 'fenceing', 'fencing'],
    ['ZooKeeperLockProvider', 'sesionTimeout', 'sessionTimeout'],
    ['MemcachedLockProvider', 'command_timeout', 'commandTimeout'],
    ['MemoryLockProvider', 'stor', 'store'],
    ['FailoverLockProvider', 'windows', 'window'],
  ])('%s: "%s" is "%s"', (owner, wrong, right) => {
    expect(messageOf(() => MAKERS[owner]?.({ [wrong]: 1 }))).toBe(
      `${owner}: there is no option "${wrong}": write "${right}".`,
    );
  });

  it('options of another source, of a node of Redlock, and of "auth"', () => {
    expect(messageOf(() => MAKERS['TypeOrmRowLockProvider']?.({ url }))).toMatch(/no option "url": remove it/);
    const slow = { ...node, commandTimeout: '1s' };
    expect(messageOf(() => MAKERS['RedlockLockProvider']?.({ nodes: [node, slow, node] }))).toMatch(
      /node 2: there is no option "commandTimeout": remove it/,
    );
    expect(messageOf(() => MAKERS['ZooKeeperLockProvider']?.({ auth: { credentials: 'a:b', schema: 'digest' } }))).toBe(
      'ZooKeeperLockProvider, "auth": there is no option "schema": write "scheme".',
    );
  });

  it('also where the source is misspelled', () => {
    expect(messageOf(() => new RedisLockProvider({ ulr: 'redis://redis' } as never))).toContain(
      'There is no option "ulr": write "url". Write {',
    );
    expect(messageOf(() => new RedlockLockProvider({ node: nodes, maxLease: '1m' } as never))).toContain(
      'There is no option "node": write "nodes".',
    );
  });

  it('those of a client, of a driver and of tls.connect are passed on', () => {
    const client = { host: 'redis', enableOfflineQueue: false, ofNobody: 1 };
    expect(() => new RedisLockProvider({ options: client })).not.toThrow();
    expect(() => new RedisLockProvider({ cluster: ['a'], options: { redisOptions: client } })).not.toThrow();
    expect(() => new SqlVersionLockProvider({ postgres: client })).not.toThrow();
    expect(() => new ZooKeeperLockProvider({ connectString: 'zk', tls: { ofNobody: 1 } as never })).not.toThrow();
  });

  it('of a lock', async () => {
    const locks = new LockManager({ providers: { memory: new MemoryLockProvider() } });
    await expect(locks.acquire('k', { maxhold: '1s' } as never)).rejects.toThrow(
      'There is no option "maxhold" for a lock of provider "memory": write "maxHold".',
    );
    await expect(locks.acquire('k', { quux: 1 } as never)).rejects.toThrow(/"quux" .*: remove it\./);
    const all = { timeout: '1s', quux: 1, ttl: '5s' } as never;
    await expect(locks.acquire('k', all)).rejects.toThrow(
      'There is no option "timeout" for a lock of provider "memory": write "wait". ' +
        'There is no option "ttl" for a lock of provider "memory": write "lease". ' +
        'There is no option "quux" for a lock of provider "memory": remove it. ' +
        'The options are "provider", "mode", "limit", ',
    );
  });
});

// Redisson, redis-semaphore, ShedLock, node-redlock.
it.each([
  ['leaseTime', 'lease'],
  ['waitTime', 'wait'],
  ['lockTimeout', 'lease'],
  ['acquireTimeout', 'wait'],
  ['lockAtMostFor', 'lease'],
  ['lockAtLeastFor', 'minHold'],
  ['retryCount', 'wait'],
  ['retryDelay', 'wait'],
  ['ttl', 'lease'],
  ['expire', 'lease'],
])('"%s" of another library is "%s"', async (name, right) => {
  const locks = new LockManager({ providers: { memory: new MemoryLockProvider() } });
  await expect(locks.acquire('k', { [name]: '1s' })).rejects.toThrow(
    `There is no option "${name}" for a lock of provider "memory": write "${right}".`,
  );
});

it.each([
  ['ulr', ['client', 'url', 'options'], 'url'],
  ['db', ['url', 'acl', 'tls'], undefined],
  ['host', ['store', 'server'], undefined],
  ['votes', ['nodes'], undefined],
  ['WINDOW', ['window'], 'window'],
  ['lease', ['nodes', 'maxLease'], 'maxLease'],
])('the nearest name to "%s" of %j is %j', (name, known, expected) => {
  expect(nearest(name, known)).toBe(expected);
});
