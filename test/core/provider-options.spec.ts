import { Test } from '@nestjs/testing';
import { DataSource } from 'typeorm';
import { LockConfigError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { nearest } from '../../lib/core/toolkit/nearest.js';
import { DistributedLockModule } from '../../lib/index.js';
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

/** Creates each provider with a valid source, plus options that a JavaScript program might pass. */
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
  return 'No error was thrown.';
}

describe('unknown options', () => {
  it.each(Object.entries(MAKERS))('%s rejects a module option and an unknown option', (owner, make) => {
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
  ])('%s corrects a misspelled option: "%s" is "%s"', (owner, wrong, right) => {
    expect(messageOf(() => MAKERS[owner]?.({ [wrong]: 1 }))).toBe(
      `${owner}: there is no option "${wrong}": write "${right}".`,
    );
  });

  it('are rejected if they belong to another source, to a Redlock node, or to "auth"', () => {
    expect(messageOf(() => MAKERS['TypeOrmRowLockProvider']?.({ url }))).toMatch(/no option "url": remove it/);
    const slow = { ...node, commandTimeout: '1s' };
    expect(messageOf(() => MAKERS['RedlockLockProvider']?.({ nodes: [node, slow, node] }))).toMatch(
      /node 2: there is no option "commandTimeout": remove it/,
    );
    expect(messageOf(() => MAKERS['ZooKeeperLockProvider']?.({ auth: { credentials: 'a:b', schema: 'digest' } }))).toBe(
      'ZooKeeperLockProvider, "auth": there is no option "schema": write "scheme".',
    );
  });

  it('are reported even if the source is misspelled', () => {
    expect(messageOf(() => new RedisLockProvider({ ulr: 'redis://redis' } as never))).toContain(
      'There is no option "ulr": write "url". Write {',
    );
    expect(messageOf(() => new RedlockLockProvider({ node: nodes, maxLease: '1m' } as never))).toContain(
      'There is no option "node": write "nodes".',
    );
  });

  it('are passed on to a client, a driver and tls.connect', () => {
    const client = { host: 'redis', enableOfflineQueue: false, ofNobody: 1 };
    expect(() => new RedisLockProvider({ options: client })).not.toThrow();
    expect(() => new RedisLockProvider({ cluster: ['a'], options: { redisOptions: client } })).not.toThrow();
    expect(() => new SqlVersionLockProvider({ postgres: client })).not.toThrow();
    expect(() => new ZooKeeperLockProvider({ connectString: 'zk', tls: { ofNobody: 1 } as never })).not.toThrow();
  });

  it('are rejected for a lock', async () => {
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

// Options of Redisson, redis-semaphore, ShedLock and node-redlock.
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
])('the option "%s" of other libraries corresponds to "%s"', async (name, right) => {
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
])('the nearest name to "%s" among %j is %j', (name, known, expected) => {
  expect(nearest(name, known)).toBe(expected);
});

// The value of `process.env.LOCKS_URL` if the variable is not set.
const UNSET = process.env['A_VARIABLE_THAT_IS_NOT_SET'] as never;

const AS_TEXT = String(UNSET);

const redis = (options: object) => () => new RedisLockProvider(options as never);

const postgres = { host: 'localhost', user: 'app', password: 'secret', database: 'shop' };

describe('options without a value', () => {
  it.each<[string, string, () => unknown]>([
    ['url', 'undefined', redis({ url: UNSET })],
    ['client', 'undefined', redis({ client: UNSET })],
    ['cluster', 'undefined', redis({ cluster: UNSET })],
    ['options', 'undefined', redis({ options: UNSET })],
    ['options.host', 'undefined', redis({ options: { host: UNSET, port: 6379 } })],
    ['options.port', 'NaN', redis({ options: { host: 'redis', port: Number(UNSET) } })],
    ['options.username', 'undefined', redis({ options: { host: 'redis', username: UNSET } })],
    ['options.password', 'undefined', redis({ options: { host: 'redis', password: UNSET } })],
    ['options.db', 'undefined', redis({ options: { host: 'redis', db: UNSET } })],
    ['options.name', 'undefined', redis({ options: { sentinels: [{ host: 's1', port: 1 }], name: UNSET } })],
    ['options.sentinels', 'undefined', redis({ options: { sentinels: UNSET, name: 'locks' } })],
    ['options.sentinels[1].host', 'undefined', redis({ options: { sentinels: [{ host: 's' }, { host: UNSET }] } })],
    ['options.sentinelPassword', 'undefined', redis({ options: { sentinelPassword: UNSET } })],
    ['options.socket.host', 'undefined', redis({ options: { socket: { host: UNSET } } })],
    [
      'options.redisOptions.password',
      'undefined',
      redis({ cluster: ['c1'], options: { redisOptions: { password: UNSET } } }),
    ],
    ['cluster[1]', 'undefined', redis({ cluster: [{ host: 'c1' }, UNSET] })],
    ['cluster[0].host', 'undefined', redis({ cluster: [{ host: UNSET, port: 6379 }] })],
    ['nodes', 'undefined', () => new RedlockLockProvider({ nodes: UNSET, maxLease: '1m' })],
    [
      'url',
      'undefined',
      () =>
        new RedlockLockProvider({
          nodes: [{ url: 'redis://a' }, { url: UNSET }, { url: 'redis://c' }],
          maxLease: '1m',
        }),
    ],
    ['url', 'undefined', () => new SqlRowLockProvider({ url: UNSET })],
    ['mysql', 'undefined', () => new SqlVersionLockProvider({ mysql: UNSET })],
    ['postgres.host', 'undefined', () => new SqlVersionLockProvider({ postgres: { ...postgres, host: UNSET } })],
    ['postgres.user', 'undefined', () => new SqlRowLockProvider({ postgres: { ...postgres, user: UNSET } })],
    [
      'postgres.password',
      'undefined',
      () => new SqlAdvisoryLockProvider({ postgres: { ...postgres, password: UNSET } }),
    ],
    ['mysql.database', 'undefined', () => new SqlAdvisoryLockProvider({ mysql: { ...postgres, database: UNSET } })],
    ['table', 'undefined', () => new SqlVersionLockProvider({ postgres, table: UNSET })],
    ['table', 'undefined', () => lockTablesSql('postgres', { table: UNSET })],
    ['dataSource', 'undefined', () => new TypeOrmVersionLockProvider({ dataSource: UNSET })],
    ['table', 'undefined', () => new TypeOrmVersionLockProvider({ dataSource, table: UNSET })],
    ['connectString', 'undefined', () => new ZooKeeperLockProvider({ connectString: UNSET })],
    [
      'auth.credentials',
      'undefined',
      () => new ZooKeeperLockProvider({ connectString: 'zk1', auth: { credentials: UNSET } }),
    ],
    ['server', 'undefined', () => new MemcachedLockProvider({ server: UNSET })],
    ['store', 'undefined', () => new MemoryLockProvider({ store: UNSET })],
    ['providers', 'undefined', () => new CombinedLockProvider({ providers: UNSET })],
    ['casStore', 'undefined', () => new FailoverLockProvider({ providers: ['a', 'b'], casStore: UNSET })],
  ])('are rejected by name rather than ignored: "%s" is %s', (place, value, make) => {
    expect(messageOf(make)).toMatch(
      new RegExp(`"${place.replace(/[[\].]/g, '\\$&')}".* is ${value}: set the variable`),
    );
  });

  it.each<[string, () => unknown]>([
    ['the host of a URL', redis({ url: `redis://${AS_TEXT}:6379` })],
    ['the password of a URL', redis({ url: `redis://app:${AS_TEXT}@redis:6379` })],
    ['the host of a node', redis({ cluster: [`redis://${AS_TEXT}:6379`] })],
    ['a host', redis({ options: { host: String(UNSET) } })],
    ['the database of a URL', () => new SqlRowLockProvider({ url: `postgres://app:secret@db/${AS_TEXT}` })],
    ['the host of a server', () => new MemcachedLockProvider({ server: `${AS_TEXT}:11211` })],
    ['one of several servers', () => new ZooKeeperLockProvider({ connectString: `zk1:2181,${AS_TEXT}:2181` })],
    ['credentials', () => new ZooKeeperLockProvider({ connectString: 'zk', auth: { credentials: `app:${AS_TEXT}` } })],
  ])('are rejected if a template turned the value into text: %s', (_, make) => {
    const message = messageOf(make);
    expect(message).toMatch(/'undefined'.*: set the variable/);
    expect(message).not.toContain('secret');
  });

  it.each(['provider', 'providers', 'default', 'namespace'])('are rejected for the module: "%s"', async (option) => {
    const options = { provider: new MemoryLockProvider(), [option]: UNSET };
    const booting = Test.createTestingModule({ imports: [DistributedLockModule.forRoot(options)] }).compile();
    await expect(booting).rejects.toThrow(`DistributedLockModule: "${option}" is undefined: set the variable`);
  });
});

it.each<[string, () => unknown]>([
  ["the alternatives to a server's URL", redis({ url: 'redis://redis', client: undefined, options: undefined })],
  ['an absent password', redis({ options: { host: 'redis', username: null, password: '' } })],
  ['TLS only in production', redis({ options: { host: 'redis', tls: undefined } })],
  ['durations with a default', redis({ url: 'redis://redis', commandTimeout: undefined, waitReplicas: undefined })],
  [
    'a getter that is read on each connection',
    redis({
      options: {
        host: 'redis',
        get password() {
          return UNSET;
        },
      },
    }),
  ],
  ['names that merely start with such text', redis({ url: 'redis://undefined-values:nullable@null-island/0' })],
])('an option may be undefined if the meaning is clear: %s', (_, make) => {
  expect(make).not.toThrow();
});

describe('options in the wrong shape are rejected with the correct syntax', () => {
  const TEXT = 'redis://app:secret@localhost' as never;
  it.each<[string, () => unknown, RegExp]>([
    [
      'a string for Redis',
      () => new RedisLockProvider(TEXT),
      /given a string: write \{ url: 'redis:\/\/localhost:6379' \}/,
    ],
    ['undefined for Redis', () => new RedisLockProvider(UNSET), /given undefined: write \{ url/],
    [
      'an address for Redis',
      redis({ host: 'redis', port: 6379 }),
      /no option "host" or "port"\. Write .*options: \{ host/,
    ],
    ['a string for SQL', () => new SqlRowLockProvider(TEXT), /write new SqlRowLockProvider\(\{ url: 'postgres:/],
    [
      'an address for SQL',
      () => new SqlRowLockProvider({ host: 'db' } as never),
      /no option "host"\. Write .*postgres: \{ host/,
    ],
    [
      'a string for ZooKeeper',
      () => new ZooKeeperLockProvider(TEXT),
      /write new ZooKeeperLockProvider\(\{ connectString/,
    ],
    [
      'an address for ZooKeeper',
      () => new ZooKeeperLockProvider({ servers: 'zk' } as never),
      /no option "servers"\. Write new ZooKeeperLockProvider\(\{ connectString: 'zk1/,
    ],
    ['a string for memcached', () => new MemcachedLockProvider(TEXT), /write new MemcachedLockProvider\(\{ server/],
    [
      'an address for memcached',
      () => new MemcachedLockProvider({ host: 'm' } as never),
      /"server" is undefined, but must be host:port.*no option "host"/,
    ],
    [
      'an empty list for Redlock',
      () => new RedlockLockProvider([] as never),
      /given an empty list: write new RedlockLockProvider\(\{ nodes/,
    ],
    [
      'strings as Redlock nodes',
      () => new RedlockLockProvider({ nodes: [TEXT, TEXT, TEXT], maxLease: '1m' }),
      /node 1 .*given a string: write \{ url/,
    ],
    [
      'a string for TypeORM',
      () => new TypeOrmVersionLockProvider(TEXT),
      /write new TypeOrmVersionLockProvider\(\{ dataSource \}\)/,
    ],
    ['an HTTP URL', redis({ url: 'http://redis:6379' }), /"url" begins with http:\/\/, but must begin with redis:\/\//],
    ['a Postgres URL', redis({ url: 'postgres://app:secret@db' }), /begins with postgres:\/\/, but must/],
    ['a URL without a scheme', redis({ url: 'localhost:6379' }), /"url" has no scheme, but must begin with redis:\/\//],
    ['a node with an HTTP URL', redis({ cluster: ['http://c1:6379'] }), /"cluster\[0\]" begins with http:\/\//],
  ])('%s', (_, make, message) => {
    expect(messageOf(make)).toMatch(message);
    expect(messageOf(make)).not.toContain('secret');
  });
});
