import { Redis } from 'ioredis';
import { jest } from '@jest/globals';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { IOREDIS, NODE_REDIS } from './client-libraries.js';
import { redisForTests, until, granted, request, startBackend } from './seam.js';
import { SeededRandom } from '../../lib/provider-kit/seeded-random.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import {
  isBusyReply,
  readFreeIn,
  readHeld,
  readHolder,
  readNotice,
  readQueued,
} from '../../lib/providers/redis/wire.js';
import { isAnswer, readShownVote, readVote } from '../../lib/providers/redlock/lock-script.js';

const RETRIED_FOR = 10_000;
const failureOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => 'done',
    (error: unknown) => error,
  );

let running: LockManager[];
let log: string[];
beforeEach(() => {
  [running, log] = [[], []];
});
afterEach(async () => {
  await Promise.all(running.map((locks) => locks.stop()));
});

function managerOf(providers: Record<string, LockProvider>, failFast = true): LockManager {
  const say = (message: string) => void log.push(message);
  const [first] = Object.keys(providers);
  const locks = new LockManager({
    ...{ providers, default: first, failFast, shutdownGrace: 0 },
    logger: { debug: () => undefined, warn: say, error: say },
  });
  running.push(locks);
  return locks;
}

describe.each([IOREDIS, NODE_REDIS])('a replica in place of the master, with %s', (library) => {
  let master: RedisServer;
  let replica: RedisServer;
  let address: TcpProxy;

  beforeEach(async () => {
    master = await startRedisServer();
    replica = await startRedisServer({ args: ['--replicaof', '127.0.0.1', String(master.port)] });
    address = await startTcpProxy(replica.port);
    const admin = new Redis(master.url);
    await until(
      async () => (await admin.info('replication')).includes('state=online'),
      'the replica is connected',
      20_000,
    );
    admin.disconnect();
  }, 60_000);
  afterEach(async () => {
    await Promise.all(running.splice(0).map((locks) => locks.stop()));
    await address.close();
    await Promise.all([master.stop(), replica.stop()]);
  });
  const provider = () =>
    new RedisLockProvider({ ...library.server(`redis://127.0.0.1:${address.port}`), commandTimeout: '10s' });

  it.each([true, false])('fails the boot, and the error names it (failFast: %s)', async (failFast) => {
    const error = await failureOf(managerOf({ redis: provider() }, failFast).start());
    expect(error).toBeInstanceOf(LockConfigError);
    expect(error).toMatchObject({ refused: true, provider: 'redis' });
    expect(String(error)).toMatch(/this server is a replica.*Give the provider the address of the master/);
    expect(log.join('\n')).not.toMatch(/INFO: its version|is responding again/);
  });

  it('is an outage for a provider built on it, and recovers when the address leads to the master', async () => {
    const locks = managerOf(
      {
        both: new CombinedLockProvider({ providers: ['memory', 'redis'] }),
        memory: new MemoryLockProvider(),
        redis: provider(),
      },
      false,
    );
    await locks.start();
    expect(log).toContainEqual(expect.stringMatching(/"redis" is not responding: .*is a replica/));
    expect(await failureOf(locks.acquire('k', { wait: 0 }))).toBeInstanceOf(Error);
    address.leadTo(master.port);
    await until(
      async () => (await failureOf(locks.withLock('k', () => 1))) === 'done',
      'the provider has recovered',
      20_000,
    );
  }, 60_000);

  it('is an outage for 10 s if the provider was connected to the master, then a refusal, and one line in the log', async () => {
    address.leadTo(master.port);
    const locks = managerOf({ redis: provider() });
    await locks.start();
    await locks.withLock('k', () => undefined);
    address.leadTo(replica.port);
    address.cut();
    address.heal();
    const began = performance.now();
    await until(() => log.some((line) => line.includes('is a replica')), 'the replica is noticed', 20_000);
    const first = await failureOf(locks.acquire('k', { wait: 0 }));
    if (performance.now() - began < RETRIED_FOR / 2) expect(first).toBeInstanceOf(LockUnavailableError);
    expect(String(first)).toMatch(/is a replica/);
    // A waiter is refused when the refusal is certain, not at the end of its wait.
    const error = await failureOf(locks.acquire('k', { wait: 120_000 }));
    expect(error).toBeInstanceOf(LockConfigError);
    expect(performance.now() - began).toBeGreaterThan(RETRIED_FOR * 0.8);
    expect(log.filter((line) => line.includes('is responding again'))).toEqual([]);
    address.leadTo(master.port);
    await until(
      async () => (await failureOf(locks.withLock('k', () => 1))) === 'done',
      'the address leads to the master',
      20_000,
    );
  }, 120_000);
});

describe('a user without permission', () => {
  const redis = redisForTests();
  const USER = 'app';
  const allow = (...rules: string[]) => redis.admin.call('ACL', 'SETUSER', USER, 'reset', 'on', '>secret', ...rules);
  const url = () => `redis://${USER}:secret@127.0.0.1:${redis.server.port}`;

  it.each<[string, string[]]>([
    ['a command', ['~*', '&*', '+@all', '-zadd', '-set']],
    ['EVALSHA and EVAL', ['~*', '&*', '+@all', '-evalsha', '-eval']],
    ['keys', ['~other:*', '&*', '+@all']],
  ])('is refused immediately: %s', async (_, rules) => {
    await allow(...rules);
    const locks = managerOf({ redis: new RedisLockProvider({ url: url() }) });
    await locks.start();
    const error = await failureOf(locks.acquire('k', { wait: 120_000 }));
    expect(error).toBeInstanceOf(LockConfigError);
    expect(error).toMatchObject({ key: 'k', provider: 'redis', refused: true });
    expect(String(error)).toMatch(/the Redis user lacks a permission \(.*docs\/providers\/redis\.md/);
    await allow('~*', '&*', '+@all');
    expect(await locks.withLock('k', () => 'done')).toBe('done');
  });

  it('is refused if a majority of nodes denies it, and served if a single node does', async () => {
    await allow('~*', '&*', '+@all', '-set', '-evalsha', '-eval');
    const others = await Promise.all([startRedisServer(), startRedisServer()]);
    const [two, three] = others.map((server) => server.url) as [string, string];
    try {
      const one = managerOf({
        redlock: new RedlockLockProvider({
          nodes: [url(), two, three].map((each) => ({ url: each })),
          maxLease: '1m',
          commandTimeout: '20s',
        }),
      });
      await one.start();
      expect(await one.withLock('k', () => 'done')).toBe('done');
      const admins = others.map((server) => new Redis(server.url));
      for (const admin of admins) await admin.call('ACL', 'SETUSER', 'default', '-set', '-eval', '-evalsha');
      const error = await failureOf(one.acquire('other', { wait: 120_000 }));
      expect(error).toBeInstanceOf(LockConfigError);
      expect(String(error)).toMatch(/fewer than \d of the \d Redis nodes responded.*refuses/);
      for (const admin of admins) admin.disconnect();
    } finally {
      await Promise.all(running.splice(0).map((locks) => locks.stop()));
      await Promise.all(others.map((server) => server.stop()));
    }
  }, 60_000);
});

describe('a rotated password that this process does not get', () => {
  const redis = redisForTests();

  it('is an outage for 10 s, then a refusal, and a correct one is accepted at any time', async () => {
    const setPassword = (password: string) =>
      redis.admin.call('ACL', 'SETUSER', 'app', 'on', 'resetpass', `>${password}`, '~*', '&*', '+@all');
    await setPassword('old');
    const options = { host: '127.0.0.1', port: redis.server.port, username: 'app', password: 'old' };
    const locks = managerOf({ redis: new RedisLockProvider({ options }) });
    await locks.start();
    await setPassword('new');
    await redis.admin.call('CLIENT', 'KILL', 'USER', 'app');
    const began = performance.now();
    await until(() => log.some((line) => line.includes('rejects the login')), 'the login is refused', 20_000);
    const first = await failureOf(locks.acquire('k', { wait: 0 }));
    if (performance.now() - began < RETRIED_FOR / 2) expect(first).toBeInstanceOf(LockUnavailableError);
    const error = await failureOf(locks.acquire('k', { wait: 120_000 }));
    expect(error).toBeInstanceOf(LockConfigError);
    expect(String(error)).toMatch(/WRONGPASS/);
    expect(performance.now() - began).toBeGreaterThan(RETRIED_FOR * 0.8);
    options.password = 'new';
    await until(
      async () => (await failureOf(locks.withLock('k', () => 1))) === 'done',
      'the login is accepted',
      20_000,
    );
  }, 120_000);

  it('is a refusal at startup if it was never accepted', async () => {
    const url = `redis://app:wrong@127.0.0.1:${redis.server.port}`;
    const error = await failureOf(managerOf({ redis: new RedisLockProvider({ url }) }, false).start());
    expect(error).toBeInstanceOf(LockConfigError);
    expect(String(error)).toMatch(/rejects the login \(WRONGPASS.*Check the username and password/);
    const nodes = [1, 2, 3].map(() => ({ url }));
    const other = await failureOf(managerOf({ redlock: new RedlockLockProvider({ nodes, maxLease: '1m' }) }).start());
    expect(other).toBeInstanceOf(LockConfigError);
  });
});

const HOLDER = 'a'.repeat(32);
const REPLIES = [
  '1700000000000000',
  'h170000000000000030000',
  'q170000000000000030000 0123456789ab 12',
  'b +2',
  `170000000000000017000000000000000130000:${HOLDER} lock:{0}:k`,
  `k100:${HOLDER}`,
  `+170000000000000017000000000000013000`,
  `${HOLDER}17000000000000003000`,
];

describe('a corrupted reply', () => {
  it.each(REPLIES)('is parsed or counts as no answer, without throwing: %s', (reply) => {
    const random = new SeededRandom(reply.length);
    for (let round = 0; round < 500; round += 1) {
      const at = Math.floor(random.fraction() * reply.length);
      const changed =
        reply.slice(0, at) + String.fromCharCode(Math.floor(random.fraction() * 256)) + reply.slice(at + 1);
      const held = readHeld(changed, 30_000);
      const queued = readQueued(changed);
      for (const each of [held?.left, queued?.freeIn, queued?.serverTime]) expect(each).not.toBeNaN();
      readHolder(changed);
      readNotice(changed);
      readFreeIn(changed);
      expect([true, false]).toContain(isBusyReply(changed));
      if (isAnswer(changed)) {
        readVote(changed);
        readShownVote(changed);
      }
    }
  });

  describe('on a server', () => {
    const redis = redisForTests();
    afterEach(() => {
      jest.restoreAllMocks();
    });

    it('fails only its own operation: all eight callers in its call get their lock', async () => {
      const locks = new LockManager({ providers: { redis: new RedisLockProvider({ url: redis.server.url }) } });
      await locks.start();
      await locks.withLock('warm-up', () => undefined);
      let changed = 0;
      const { sendCommand } = Redis.prototype;
      jest.spyOn(Redis.prototype, 'sendCommand').mockImplementation(async function (this: Redis, ...sent) {
        const reply: unknown = await sendCommand.apply(this, sent);
        if (!Array.isArray(reply) || reply.length < 8 || changed > 0) return reply;
        changed += 1;
        return [String(reply[0]).replace(/\d$/, 'x'), ...(reply as unknown[]).slice(1)];
      });
      const keys = Array.from({ length: 8 }, (_, index) => `k${index}`);
      const ran = keys.map((key) => locks.withLock(key, () => key, { wait: 10_000 }));
      expect(await Promise.all(ran)).toEqual(keys);
      expect(changed).toBe(1);
      await locks.stop();
    });

    it('an invalid instance name is replaced by the id', async () => {
      const { backend } = await startBackend({ url: redis.server.url });
      await backend.register();
      granted(await backend.acquire(request('k')));
      const info = await backend.inspect('k');
      const [id = ''] = info?.instances ?? [];
      for (const evil of ['x\u001b[31m', 'L'.repeat(200_000), '\u202egnp.exe']) {
        await redis.admin.set(new KeyLayout('lock').textOf('instance', id), evil);
        expect((await backend.inspect('k'))?.instances).toEqual([id]);
      }
      await redis.admin.set(new KeyLayout('lock').textOf('instance', id), 'shop-1');
      expect((await backend.inspect('k'))?.instances).toEqual(['shop-1']);
    });
  });
});
