import { Cluster, Redis } from 'ioredis';
import { Cluster as Cluster5, Redis as Redis5 } from 'ioredis5';
import { createClient } from 'redis';
import { createClient as createClient5 } from 'redis5';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { RedisLockProvider, type RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { startRedisCluster } from '../servers/redis-cluster.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { redisForTests, until } from './seam.js';

const USER = 'app';
const [OLD, NEW] = ['token-1', 'token-2'];
const FAST = { lazyConnect: true, retryStrategy: () => 20 } as const;

/** Makes this the user's only password for new connections. */
async function setPassword(admin: Redis, password: string, command = '+@all'): Promise<void> {
  await admin.call('ACL', 'SETUSER', USER, 'on', 'resetpass', `>${password}`, '~*', '&*', command);
}

async function endConnections(admin: Redis): Promise<void> {
  await admin.call('CLIENT', 'KILL', 'USER', USER);
}

describe('a rotated password', () => {
  const redis = redisForTests();
  const running: LockManager[] = [];
  let log: string[];

  beforeEach(async () => {
    log = [];
    await setPassword(redis.admin, OLD);
  });
  afterEach(async () => {
    await Promise.all(running.splice(0).map((locks) => locks.stop()));
  });

  const managerOf = (provider: RedisLockProvider | RedlockLockProvider): LockManager => {
    const say = (message: string) => void log.push(message);
    const logger = { debug: () => undefined, warn: say, error: say };
    const locks = new LockManager({ providers: { redis: provider }, logger, shutdownGrace: 0 });
    running.push(locks);
    return locks;
  };
  const start = async (options: RedisLockProviderOptions): Promise<LockManager> => {
    const locks = managerOf(new RedisLockProvider(options));
    await locks.start();
    await locks.withLock('k', () => undefined);
    return locks;
  };

  interface Rotating {
    readonly options: RedisLockProviderOptions;
    rotate(): void;
  }
  const address = () => ({ host: '127.0.0.1', port: redis.server.port, username: USER, password: OLD });
  const byClient = (client: Redis | Redis5): Rotating => ({
    options: { client },
    rotate: () => (client.options.password = NEW),
  });
  const byProvider = (create: (options: object) => object): Rotating => {
    let password = OLD;
    const credentials = () => Promise.resolve({ username: USER, password });
    const credentialsProvider = { type: 'async-credentials-provider', credentials } as const;
    const client = create({ socket: { port: redis.server.port }, credentialsProvider });
    return { options: { client: client as never }, rotate: () => (password = NEW) };
  };

  it.each<[string, () => Rotating]>([
    ['the options of an ioredis client', () => byClient(new Redis({ ...FAST, ...address() }))],
    ['the options of an ioredis 5 client', () => byClient(new Redis5({ ...FAST, ...address() }))],
    [
      'options without a client',
      () => {
        const options = address();
        return { options: { options }, rotate: () => (options.password = NEW) };
      },
    ],
    ['the credentials provider of node-redis', () => byProvider((options) => createClient(options))],
    ['the credentials provider of node-redis 5', () => byProvider((options) => createClient5(options))],
  ])('is read from %s for each connection', async (_, rotating) => {
    const { options, rotate } = rotating();
    const locks = await start(options);
    await setPassword(redis.admin, NEW);
    rotate();
    await endConnections(redis.admin);
    expect(await locks.withLock('k', () => 'done')).toBe('done');
    // Includes the connection for messages.
    await until(async () => (await redis.admin.pubsub('CHANNELS')).length === 1, 'the process listens');
  });

  it('is named in the error and once in the log while the client has the old one, and works once the client has the new one', async () => {
    const client = new Redis({ ...FAST, ...address() });
    const locks = await start({ client, commandTimeout: 500 });
    await setPassword(redis.admin, NEW);
    await endConnections(redis.admin);
    await until(() => log.some((line) => line.includes('rejects the login')), 'the refusal is logged');
    const error: unknown = await locks.acquire('k', { wait: 1_000 }).catch((failure: unknown) => failure);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect(String(error)).toMatch(/Redis rejects the login \(WRONGPASS .*Check the username and password/);
    expect(String(error)).not.toMatch(/did not respond|token-/);
    expect(log.filter((line) => line.includes('rejects the login'))).toEqual([
      expect.stringMatching(/WRONGPASS .*Check the username and password/),
    ]);
    client.options.password = NEW;
    await until(async () => (await locks.tryAcquire('k').catch(() => null)) !== null, 'the login is accepted');
  });

  it.each<[string, object, RegExp]>([
    ['a wrong password', { password: 'wrong' }, /rejects the login \(WRONGPASS /],
    ['none', { username: null, password: null }, /rejects the login \(NOAUTH /],
  ])('fails startup with an error that names the cause: %s', async (_, wrong, message) => {
    await redis.admin.call('ACL', 'SETUSER', 'default', 'resetpass', '>admin');
    try {
      for (const settings of [
        { options: { ...address(), ...wrong } },
        { client: createClient({ socket: { port: redis.server.port }, username: USER, ...wrong }) as object },
      ]) {
        await expect(managerOf(new RedisLockProvider(settings as RedisLockProviderOptions)).start()).rejects.toThrow(
          message,
        );
      }
      const nodes = [1, 2, 3].map(() => ({ options: { ...address(), ...wrong } }));
      await expect(managerOf(new RedlockLockProvider({ nodes, maxLease: '1m' })).start()).rejects.toThrow(message);
    } finally {
      await redis.admin.call('ACL', 'SETUSER', 'default', 'nopass');
    }
  });

  it('is read for each connection to Sentinel and to the master', async () => {
    const sentinel = await startRedisServer({ sentinel: `sentinel monitor locks 127.0.0.1 ${redis.server.port} 1` });
    const watch = new Redis(sentinel.port, { protocol: 2 });
    try {
      await setPassword(watch, OLD);
      const client = new Redis({
        ...FAST,
        sentinels: [{ host: '127.0.0.1', port: sentinel.port }],
        name: 'locks',
        username: USER,
        password: OLD,
        sentinelUsername: USER,
        sentinelPassword: OLD,
      });
      const locks = await start({ client });
      await Promise.all([watch, redis.admin].map((admin) => setPassword(admin, NEW)));
      Object.assign(client.options, { password: NEW, sentinelPassword: NEW });
      const listening = async () => String(await watch.call('CLIENT', 'LIST')).split(`user=${USER}`).length - 1;
      // The connections that listen for failovers reconnect automatically.
      await endConnections(watch);
      await until(async () => (await listening()) >= 2, 'both connections listen to the Sentinel');
      await endConnections(redis.admin);
      expect(await locks.withLock('k', () => 'done')).toBe('done');
    } finally {
      watch.disconnect();
      await Promise.all(running.splice(0).map((locks) => locks.stop()));
      await sentinel.stop();
    }
  });

  it.each<[string, (nodes: { host: string; port: number }[], redisOptions: object) => Cluster | Cluster5]>([
    ['ioredis', (nodes, redisOptions) => new Cluster(nodes, { redisOptions, lazyConnect: true })],
    ['ioredis 5', (nodes, redisOptions) => new Cluster5(nodes, { redisOptions, lazyConnect: true })],
  ])(
    'is read from the options of an %s Cluster client for each node connection',
    async (_, make) => {
      const cluster = await startRedisCluster();
      const admins = cluster.addresses.map(({ host, port }) => new Redis(port, host));
      try {
        await Promise.all(admins.map((admin) => setPassword(admin, OLD)));
        for (const admin of admins) await admin.call('ACL', 'SETUSER', 'default', 'resetpass', '>admin');
        const client = make([...cluster.addresses], { username: USER, password: OLD });
        const locks = await start({ client });
        await Promise.all(admins.map((admin) => setPassword(admin, NEW)));
        Object.assign(client.options.redisOptions ?? {}, { password: NEW });
        await Promise.all(admins.map((admin) => endConnections(admin)));
        const keys = Array.from({ length: 12 }, (__, index) => `k${index}`);
        expect(await Promise.all(keys.map((key) => locks.withLock(key, () => key)))).toEqual(keys);
      } finally {
        for (const admin of admins) admin.disconnect();
        await Promise.all(running.splice(0).map((locks) => locks.stop()));
        await cluster.stop();
      }
    },
    60_000,
  );
});
