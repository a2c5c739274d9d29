import { expect } from '@jest/globals';
import { inspect } from 'node:util';
import { Redis } from 'ioredis';
import { Redis as Redis5 } from 'ioredis5';
import { createClient, createSentinel, RESP_TYPES } from 'redis';
import { createClient as createClient5 } from 'redis5';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { BackendEvent } from '../../lib/api/lock-provider.js';
import type { RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import type { RedisBackend } from '../../lib/providers/redis/redis-backend.js';
import { type RedisCluster, startRedisCluster } from '../servers/redis-cluster.js';
import { type RedisSentinels, startRedisSentinels } from '../servers/redis-sentinels.js';
import { NODE_REDIS } from './client-libraries.js';
import { backendOf, granted, redisForTests, RELEASE, request, startBackend, until, untilWaiting } from './seam.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { freePort } from '../servers/server-process.mjs';

// Options that an application's client may have and a connection for locks must not. Each was once inherited.
const UNSUITABLE = {
  keyPrefix: 'app:',
  enableReadyCheck: false,
  enableOfflineQueue: true,
  autoResendUnfulfilledCommands: true,
  maxRetriesPerRequest: null,
  enableAutoPipelining: true,
  commandTimeout: 1,
  retryStrategy: () => null,
  sentinelRetryStrategy: () => null,
  // 2 resends the command.
  reconnectOnError: () => 2 as const,
  lazyConnect: true,
} as const;

// The same for node-redis: each was once inherited.
const UNSUITABLE_NODE_REDIS = {
  disableOfflineQueue: false,
  commandsQueueMaxLength: 1,
  pingInterval: 5,
  readonly: true,
  commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer, [RESP_TYPES.NUMBER]: String } },
};
const DELAYED = { socketTimeout: 60_000, reconnectStrategy: 60_000 };

describe("the application's options do not reach the connections for locks", () => {
  const redis = redisForTests();

  const worksOver = async (options: RedisLockProviderOptions) => {
    const { backend, events } = await startBackend(options);
    const grant = granted(await backend.acquire(request('k')));
    // To ioredis, NOSCRIPT is an ordinary error, on which the application resends the command.
    await redis.admin.script('FLUSH');
    expect(await redis.admin.keys('*')).toEqual(expect.arrayContaining(['lock:{0}']));
    expect(await backend.renew(grant, 30_000)).toMatchObject({ validUntil: expect.any(Number) });
    expect(events).toEqual([]);
    await redis.admin.call('CLIENT', ['KILL', 'TYPE', 'normal', 'SKIPME', 'yes']);
    await until(() => events.some(({ type }) => type === 'recovered'), 'the connection is back');
    expect(await backend.release(grant, RELEASE)).toBe('released');
    expect((await redis.admin.keys('*')).filter((key) => !key.startsWith('lock:'))).toEqual([]);
    await backend.close();
  };

  it.each([
    ['6', () => new Redis({ ...UNSUITABLE, port: redis.server.port })],
    ['5', () => new Redis5({ ...UNSUITABLE, port: redis.server.port })],
  ])('passed with an ioredis %s client', async (_, make) => {
    const client = make();
    await worksOver({ client });
    client.disconnect();
  });

  it.each([
    [
      '6',
      () =>
        createClient({
          ...UNSUITABLE_NODE_REDIS,
          url: redis.server.url,
          socket: DELAYED,
          keyPrefix: 'app:',
          clientSideCache: { ttl: 60_000, maxEntries: 10 },
        }),
    ],
    ['5', () => createClient5({ ...UNSUITABLE_NODE_REDIS, url: redis.server.url, socket: DELAYED })],
    ['5 with RESP 3', () => createClient5({ ...UNSUITABLE_NODE_REDIS, url: redis.server.url, RESP: 3 })],
    ['6 with RESP 2', () => createClient({ ...UNSUITABLE_NODE_REDIS, url: redis.server.url, RESP: 2 })],
  ])('passed with a node-redis %s client', async (_, make) => {
    await worksOver({ client: make() });
  });

  it('passed as node-redis options', async () => {
    await worksOver({ options: { ...UNSUITABLE_NODE_REDIS, socket: { ...DELAYED, port: redis.server.port } } });
  });

  it('passed as ioredis options', async () => {
    await worksOver({ options: { ...UNSUITABLE, port: redis.server.port } });
  });

  it('passed in the query of a URL', async () => {
    await worksOver({ url: `${redis.server.url}?keyPrefix=app:&autoResendUnfulfilledCommands=1&enableOfflineQueue=1` });
  });
});

describe('a unix socket', () => {
  const path = join(tmpdir(), `lock-redis-${process.pid}.sock`);
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedisServer({ args: ['--unixsocket', path] });
  });
  afterAll(async () => {
    await server.stop();
    await rm(path, { force: true });
  });

  /** The addresses of all connections but this one. */
  async function addresses(): Promise<readonly string[]> {
    const admin = new Redis(server.port);
    const list = String(await admin.call('CLIENT', ['LIST']));
    const own = String(await admin.call('CLIENT', ['ID']));
    admin.disconnect();
    return list
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith(`id=${own} `))
      .map((line) => / addr=(\S+)/.exec(line)?.[1] ?? '');
  }

  it.each<[string, () => RedisLockProviderOptions]>([
    ['ioredis options', () => ({ options: { path } })],
    ['an ioredis client', () => ({ client: new Redis({ path, lazyConnect: true }) })],
    ['node-redis options', () => ({ options: { socket: { path, tls: false } } })],
    ['a node-redis client', () => ({ client: createClient({ socket: { path, tls: false } }) })],
  ])('in %s is used for all connections', async (_, options) => {
    const { backend } = await startBackend(options());
    const grant = granted(await backend.acquire(request('k')));
    const all = await addresses();
    expect(all.length).toBeGreaterThan(0);
    expect(new Set(all)).toEqual(new Set([`${path}:0`]));
    expect(await backend.release(grant, RELEASE)).toBe('released');
    await backend.close();
  });
});

describe('a Sentinel client that does not retry', () => {
  let redis: RedisSentinels;
  beforeAll(async () => {
    // No test waits for a failover.
    redis = await startRedisSentinels({ downAfter: 60_000 });
  }, 60_000);
  afterAll(() => redis.stop());

  it.each<[string, string, () => RedisLockProviderOptions]>([
    [
      'ioredis',
      'sentinels are unreachable',
      () => ({ client: new Redis({ ...redis.options, sentinelRetryStrategy: () => null, lazyConnect: true }) }),
    ],
    [
      'node-redis',
      'No Sentinel responded',
      () => ({
        client: createSentinel({
          name: redis.options.name,
          sentinelRootNodes: redis.options.sentinels,
          maxCommandRediscovers: 0,
          nodeClientOptions: { socket: { reconnectStrategy: false } },
          sentinelClientOptions: { socket: { reconnectStrategy: false } },
        }),
      }),
    ],
  ])(
    'does not keep the provider from retrying while all Sentinels are away: %s',
    async (_, reason, options) => {
      const { backend, events } = await startBackend({ ...options(), commandTimeout: '1s' });
      const admin = new Redis(redis.master.url);
      let failures = 0;
      for (const sentinel of redis.sentinels) sentinel.signal('SIGSTOP');
      await admin.call('CLIENT', ['KILL', 'TYPE', 'normal', 'SKIPME', 'yes']);
      await until(() => events.some(({ type }) => type === 'unavailable'), 'the connection is lost');
      await until(
        async () => {
          const error: unknown = await backend.acquire(request('k')).catch((reason: unknown) => reason);
          if (inspect(error).includes(reason)) failures += 1;
          return failures > 0;
        },
        'every Sentinel was tried',
        60_000,
      );
      for (const sentinel of redis.sentinels) sentinel.signal('SIGCONT');
      await until(() => events.some(({ type }) => type === 'recovered'), 'the connection is back', 60_000);
      granted(await backend.acquire(request('k')));
      admin.disconnect();
      await backend.close();
    },
    150_000,
  );
});

describe('errors and events contain no password', () => {
  const SECRET = 'correct-horse';
  let cluster: RedisCluster;
  const backends: RedisBackend[] = [];

  beforeAll(async () => {
    cluster = await startRedisCluster({ nodeTimeout: 5_000 });
  }, 60_000);
  afterEach(async () => {
    await Promise.all(backends.splice(0).map((backend) => backend.close()));
  });
  afterAll(() => cluster.stop());

  it.each<[string, () => RedisLockProviderOptions]>([
    ['in a URL', () => ({ url: `redis://user:${SECRET}@127.0.0.1:${cluster.addresses[0]?.port ?? 0}` })],
    ['of an ioredis 5 client', () => ({ client: new Redis5({ ...cluster.addresses[0], ...lazy }) })],
    ['of an ioredis 6 client', () => ({ client: new Redis({ ...cluster.addresses[0], ...lazy }) })],
    ['of a Cluster', () => ({ cluster: cluster.addresses, options: { redisOptions: lazy } })],
    ['of a node-redis 5 client', () => ({ client: createClient5({ ...login, socket: cluster.addresses[0] ?? {} }) })],
    ['of a node-redis 6 client', () => ({ client: createClient({ ...login, socket: cluster.addresses[0] ?? {} }) })],
    ['of a node-redis Cluster', () => NODE_REDIS.cluster(cluster.addresses, { credentials: login })],
  ])('when the server refuses the password %s', async (_, options) => {
    const events: BackendEvent[] = [];
    const backend = backendOf(options(), {}, events);
    backends.push(backend);
    const seen: unknown[] = [events];
    seen.push(await backend.connect().catch((error: unknown) => error));
    seen.push(await backend.acquire(request('k')).catch((error: unknown) => error));
    const text = inspect(seen, { depth: 20, showHidden: true });
    expect(text).not.toContain(SECRET);
    // They still say what went wrong.
    expect(inspect(seen[1], { depth: 20 })).toContain('WRONGPASS');
  });
  const login = { username: 'user', password: SECRET };
  const lazy = { ...login, lazyConnect: true };
});

type Connection = (port: number, ca: string | undefined) => RedisLockProviderOptions;

const LIBRARIES: readonly [string, Connection][] = [
  ['ioredis', (port, ca) => ({ options: { host: 'localhost', port, tls: { ca } } })],
  ['node-redis', (port, ca) => ({ client: createClient({ socket: { host: 'localhost', port, tls: true, ca } }) })],
  ['node-redis 5', (port, ca) => ({ client: createClient5({ socket: { host: 'localhost', port, tls: true, ca } }) })],
];

describe.each(LIBRARIES)('TLS, with %s', (_, connection) => {
  let folder: string;
  let server: RedisServer;
  let port: number;
  let ca: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'lock-redis-tls-'));
    const [key, certificate] = [join(folder, 'key.pem'), join(folder, 'certificate.pem')];
    const made = ['-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', certificate];
    const says = ['-days', '1', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
    execFileSync('openssl', ['req', '-x509', ...made, ...says], { stdio: 'ignore' });
    ca = readFileSync(certificate, 'utf8');
    port = await freePort();
    const files = ['--tls-cert-file', certificate, '--tls-key-file', key, '--tls-ca-cert-file', certificate];
    server = await startRedisServer({ args: ['--tls-port', String(port), '--tls-auth-clients', 'no', ...files] });
  }, 60_000);
  afterAll(async () => {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  });

  it('a lock is handed off from one process to another', async () => {
    const [one, other] = [await startBackend(connection(port, ca)), await startBackend(connection(port, ca))];
    const held = granted(await one.backend.acquire(request('k')));
    const answer = other.backend.acquire(request('k', { wait: 60_000 }));
    await untilWaiting(other);
    expect(await one.backend.release(held, RELEASE)).toBe('released');
    expect(granted(await answer).fencingToken).toBeGreaterThan(held.fencingToken ?? 0n);
    await Promise.all([one.backend.close(), other.backend.close()]);
  });

  it('a server with an untrusted certificate is unreachable, and the error names the certificate', async () => {
    const backend = backendOf(connection(port, undefined));
    const error: unknown = await backend.connect().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as { cause: { code: string } }).cause.code).toBe('DEPTH_ZERO_SELF_SIGNED_CERT');
    await backend.close();
  });
});
