import { jest } from '@jest/globals';
import { Cluster, Redis } from 'ioredis';
import { createConnection } from 'mysql2/promise';
import pg from 'pg';
import { createClient, createCluster, createSentinel } from 'redis';
import { DataSource, type DataSourceOptions } from 'typeorm';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { textOf } from '../../lib/provider-kit/secrets.js';
import { MemcachedLockProvider } from '../../lib/providers/memcached/index.js';
import { RedisLockProvider, type RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import {
  SqlAdvisoryLockProvider,
  type SqlConnectionOptions,
  SqlRowLockProvider,
  SqlVersionLockProvider,
} from '../../lib/providers/sql/index.js';
import { TypeOrmRowLockProvider } from '../../lib/providers/typeorm/index.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { type SqlServer, startMySqlOrMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { pathsTo } from './paths-to.js';

/**
 * The options whose password an inspector finds in the backend: in the client, in its last error, or in a path. The
 * documentation makes no promise about backends, which only provider authors access.
 */
const SHOWN_BY_BACKEND = new Set([
  'url of Redis',
  'ioredis options',
  'node-redis Sentinels',
  'an ioredis client',
  'a node-redis Sentinel client',
  'connectString of ZooKeeper, in the path',
  'auth of ZooKeeper',
]);

/** Passwords with each character that has a meaning in an address, unencoded. Each contains both words. */
const PASSWORDS = [']', '/', '?', '#', '@', ':', '%', '&', ' ', "'", '[', '\\', '%5D', '%40'].map(
  (characters) => `hunter${characters}tiger`,
);
const WORDS = /hunter|tiger/;

type Make = () => LockProvider;
type ByPassword = (password: string) => readonly Make[];

/** Returns a list of what a log could show, and a logger and listener that append to it. */
function recorder() {
  const seen: string[] = [];
  const see = (something: unknown) => {
    seen.push(textOf(something));
  };
  return { seen, see, logger: { debug: see, warn: see, error: see } };
}

/** Everything that an application that can't reach its server exposes. */
interface Exposure {
  /** The text of its log, its events and its errors. */
  readonly text: string;
  /** Paths to passwords in the application's objects, as an inspector finds them. */
  readonly inObjects: readonly string[];
  /** Paths to passwords in the backend, which contains the client. */
  readonly inBackend: readonly string[];
}

/** Returns what applications with these providers expose. */
function exposedBy(providers: readonly Make[]): Promise<Exposure[]> {
  return Promise.all(providers.flatMap((make) => [true, false].map((failFast) => exposedByOne(make, failFast))));
}

async function exposedByOne(make: Make, failFast: boolean): Promise<Exposure> {
  const { seen, see, logger } = recorder();
  const objects: object[] = [];
  let backend: object = {};
  try {
    const provider = make();
    const locks = new LockManager({ providers: { main: provider }, logger, failFast, shutdownGrace: 0 });
    objects.push(provider, locks);
    locks.events.on('unavailable', see);
    await locks.start().catch(see);
    await locks.withLock('order', () => 'done', { wait: 0 }).catch(see);
    await locks.stop();
    backend = locks.admin.backend(Object as never);
  } catch (error) {
    see(error);
  }
  return {
    text: seen.join('\n'),
    inObjects: await pathsTo(WORDS, objects),
    inBackend: await pathsTo(WORDS, backend),
  };
}

/** URLs with and without a user, an invalid URL, one without a scheme, and one with a query. */
const redis =
  (place: (url: string) => RedisLockProviderOptions): ByPassword =>
  (password) =>
    [
      `redis://user:${password}@127.0.0.1:1/0`,
      `redis://:${password}@127.0.0.1:1`,
      `redis://user:${password}@[127.0.0.1:1`,
      `user:${password}@127.0.0.1:1`,
      `redis://127.0.0.1:1?username=user&password=${password}`,
    ].flatMap((url) => {
      try {
        const options = place(url);
        return [() => new RedisLockProvider(options)];
      } catch {
        // The application's own client rejects some addresses, so the error never involves this package.
        return [];
      }
    });

/**
 * Returns options for which node-redis reuses its class: it creates its 500 commands anew for each JSON of options,
 * which took a third of the time.
 */
const oneKind = <T extends object>(options: T): T => ({ ...options, toJSON: () => 'options' });

/** A URL, an invalid URL, one with a query, and one without a scheme. */
const sqlAddresses = (protocol: string, password: string) => [
  `${protocol}://user:${password}@127.0.0.1:1/test`,
  `${protocol}://user:${password}@[127.0.0.1:1/test`,
  `${protocol}://127.0.0.1:1/test?user=user&password=${password}`,
  `user:${password}@127.0.0.1`,
];
const sql =
  (protocol: string, place: (url: string) => SqlConnectionOptions): ByPassword =>
  (password) =>
    sqlAddresses(protocol, password).map((url) => () => new SqlVersionLockProvider(place(url)));
const dataSource =
  (type: string): ByPassword =>
  (password) =>
    sqlAddresses(type, password).map((url) => () => {
      const options = { type, url, password: PASSWORDS[0] } as DataSourceOptions;
      return new TypeOrmRowLockProvider({ dataSource: new DataSource(options) });
    });

const memcached =
  (addressOf: (password: string) => string): ByPassword =>
  (password) => [() => new MemcachedLockProvider({ server: addressOf(password) })];
const zooKeeper =
  (addressOf: (password: string) => string, scheme?: string): ByPassword =>
  (password) => {
    const auth = scheme && { auth: { scheme, credentials: `user:${password}` } };
    // Startup gives up after the timeout.
    return [() => new ZooKeeperLockProvider({ connectString: addressOf(password), sessionTimeout: '1s', ...auth })];
  };

// Stack frames contain no passwords, and Jest looks each one up in a source map.
const { stackTraceLimit } = Error;
beforeAll(() => {
  Error.stackTraceLimit = 0;
});
afterAll(() => {
  Error.stackTraceLimit = stackTraceLimit;
});

// Every option that takes an address or a password.
it.each<[string, ByPassword]>([
  ['url of Redis', redis((url) => ({ url }))],
  ['cluster with ioredis', redis((url) => ({ cluster: [url] }))],
  ['cluster with node-redis', redis((url) => ({ cluster: [url], options: oneKind({ defaults: {} }) }))],
  ['ioredis options', redis((url) => ({ options: { host: url } }))],
  ['node-redis options', redis((url) => ({ options: oneKind({ socket: {}, url }) }))],
  [
    'node-redis Sentinels',
    redis((url) => ({ options: oneKind({ name: 'main', sentinelRootNodes: [{ host: url, port: 1 }] }) })),
  ],
  ['an ioredis client', redis((url) => ({ client: new Redis(url, { lazyConnect: true }) }))],
  ['an ioredis Cluster', redis((url) => ({ client: new Cluster([url], { lazyConnect: true }) }))],
  ['a node-redis client', redis((url) => ({ client: createClient(oneKind({ url })) }))],
  ['a node-redis Cluster', redis((url) => ({ client: createCluster(oneKind({ rootNodes: [{ url }] })) }))],
  [
    'a node-redis Sentinel client',
    redis((url) => ({
      client: createSentinel(oneKind({ name: 'main', sentinelRootNodes: [{ host: url, port: 1 }] })),
    })),
  ],
  [
    'Redlock nodes',
    (password) => {
      const nodes = [1, 2, 3].map((port) => ({ url: `redis://user:${password}@127.0.0.1:${port}` }));
      return [() => new RedlockLockProvider({ nodes, maxLease: '1m' })];
    },
  ],
  ['url of Postgres', sql('postgres', (url) => ({ url }))],
  ['url of MySQL', sql('mysql', (url) => ({ url }))],
  ['postgres.connectionString', sql('postgres', (connectionString) => ({ postgres: { connectionString } }))],
  ['postgres.host', sql('postgres', (host) => ({ postgres: { host } }))],
  ['mysql.uri', sql('mysql', (uri) => ({ mysql: { uri } }))],
  ['mysql.host', sql('mysql', (host) => ({ mysql: { host } }))],
  ['a DataSource for Postgres', dataSource('postgres')],
  ['a DataSource for MySQL', dataSource('mysql')],
  ['server of memcached', memcached((password) => `user:${password}@127.0.0.1:1`)],
  ['server of memcached with a scheme', memcached((password) => `memcached://user:${password}@127.0.0.1:1`)],
  ['server of memcached with a query', memcached((password) => `127.0.0.1:1?password=${password}`)],
  ['connectString of ZooKeeper', zooKeeper((password) => `user:${password}@127.0.0.1:1`)],
  ['connectString of ZooKeeper with a scheme', zooKeeper((password) => `zk://user:${password}@127.0.0.1:1`)],
  ['connectString of ZooKeeper, in the path', zooKeeper((password) => `127.0.0.1:1/${password}`)],
  ['auth of ZooKeeper', zooKeeper(() => '127.0.0.1:1', 'digest')],
])(
  'no password is exposed: %s',
  async (place, providersWith) => {
    // mysql2 prints query parameters that it does not know.
    const printed = jest.spyOn(console, 'error').mockReturnValue();
    const exposures = await exposedBy(PASSWORDS.flatMap(providersWith));
    printed.mockRestore();
    for (const { text, inObjects } of exposures) {
      expect(text).not.toMatch(WORDS);
      expect(inObjects).toEqual([]);
    }
    expect(exposures.some(({ inBackend }) => inBackend.length > 0)).toBe(SHOWN_BY_BACKEND.has(place));
  },
  240_000,
);

it.each([
  ['ioredis', (port: number) => ({ options: { port, password: 'hunter', username: 'tiger' } })],
  ['node-redis', (port: number) => ({ options: { socket: { port }, password: 'hunter', username: 'tiger' } })],
])('no password is exposed by a server that repeats unknown commands: %s', async (_, options) => {
  const server = await startRedisServer({ args: ['--rename-command', 'AUTH', '', '--rename-command', 'HELLO', ''] });
  const exposures = await exposedBy([() => new RedisLockProvider(options(server.port))]);
  await server.stop();
  for (const { text, inObjects } of exposures) {
    expect(text).not.toMatch(WORDS);
    expect(inObjects).toEqual([]);
  }
});

/**
 * Returns what a log could show about an application with a lock whose server refuses everything once `refuse`
 * resolves.
 */
async function exposedByRefusals(provider: LockProvider, refuse: () => Promise<unknown>) {
  const { seen, see, logger } = recorder();
  const locks = new LockManager({ providers: { main: provider }, logger, shutdownGrace: 0 });
  for (const event of ['unavailable', 'lost', 'release-pending'] as const) locks.events.on(event, see);
  await locks.start();
  const lock = await locks.acquire('order');
  await refuse();
  await locks.acquire('other', { wait: 0 }).then(see, see);
  await lock.extend().then(see, see);
  await lock.release().then(see);
  await locks.acquire('order', { wait: 0 }).then(see, see);
  await locks.stop();
  const text = seen.join('\n');
  expect(text).not.toMatch(/(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])/);
  expect(text).not.toContain(lock.holder.slice(12));
  return text;
}

it.each([
  ['ioredis', (url: string) => ({ url })],
  ['node-redis', (url: string) => ({ options: { socket: {}, url } })],
])('commands that Redis refuses expose no holder id: %s', async (_, options) => {
  const server = await startRedisServer();
  const admin = new Redis(server.url);
  const refuse = () => admin.call('ACL', 'SETUSER', 'default', '-evalsha', '-eval');
  const text = await exposedByRefusals(new RedisLockProvider(options(server.url)), refuse);
  admin.disconnect();
  await server.stop();
  expect(text).toMatch(/NOPERM/);
});

describe.each(['mysql', 'postgres'])('statements that %s refuses', (database) => {
  let server: SqlServer;
  beforeAll(async () => {
    server = database === 'mysql' ? await startMySqlOrMariaDb() : await startPostgres();
  }, 60_000);
  afterAll(() => server.stop());

  it.each([SqlRowLockProvider, SqlVersionLockProvider, SqlAdvisoryLockProvider])(
    'expose no holder id: %p',
    async (Provider) => {
      const making = new LockManager({
        providers: { main: new SqlVersionLockProvider({ url: server.url, synchronize: true }) },
      });
      await making.start();
      await making.stop();
      // No synchronize, which would create the table again.
      const provider = new Provider({ url: server.url, fencing: true });
      const text = await exposedByRefusals(provider, () => dropTables(server.url));
      expect(text).toMatch(/doesn't exist|does not exist/);
      expect(text).not.toMatch(/\bsql:|\bquery:|\bparameters:/);
    },
  );
});

/** Drops all lock tables, while a lock is held if the server allows that. */
async function dropTables(url: string): Promise<void> {
  const drop = 'DROP TABLE IF EXISTS distributed_lock';
  if (url.startsWith('postgres')) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    // The row lock keeps the table open.
    await client.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state LIKE 'idle in%'",
    );
    await client.query(drop);
    await client.end();
    return;
  }
  const connection = await createConnection(url.replace(/^mariadb/, 'mysql'));
  await connection.query('SET lock_wait_timeout = 1');
  await connection.query(drop).catch(async () => {
    const [rows] = await connection.query('SELECT trx_mysql_thread_id AS id FROM information_schema.innodb_trx');
    for (const { id } of rows as { id: number }[]) await connection.query(`KILL ${id}`);
    await connection.query(drop);
  });
  await connection.end();
}
