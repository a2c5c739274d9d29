import { LockBusyError } from '../../lib/api/errors.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { RedisLockProvider, type RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { startRedisCluster } from '../servers/redis-cluster.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { startTcpProxy } from '../servers/tcp-proxy.js';
import { IOREDIS, NODE_REDIS } from './client-libraries.js';
import { redisForTests, until } from './seam.js';

const layout = new KeyLayout('lock');
const keysUpTo = (count: number) =>
  Array.from({ length: count }, (_, index) => `stock:${String(index).padStart(3, '0')}`);
const started: LockManager[] = [];

async function start(options: RedisLockProviderOptions): Promise<LockManager> {
  const locks = new LockManager({ providers: { redis: new RedisLockProvider(options) }, defaults: { wait: 60_000 } });
  started.push(locks);
  await locks.start();
  // Makes the server load the script.
  await locks.withLock('warm-up', () => undefined);
  return locks;
}

afterEach(async () => {
  await Promise.all(started.splice(0).map((locks) => locks.stop()));
});

describe.each([IOREDIS, NODE_REDIS])('several keys on Redis, with %s', (library) => {
  const redis = redisForTests();

  /** Returns how many calls of the script the server executed while `task` ran. */
  async function callsDuring(task: () => Promise<unknown>): Promise<number> {
    await redis.admin.config('RESETSTAT');
    await task();
    const stats = await redis.admin.info('commandstats');
    return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
  }

  it.each([
    [2, {}],
    [20, {}],
    [100, {}],
    [20, { mode: 'shared' }],
    [20, { limit: 3 }],
    [20, { minHold: 100 }],
  ] as [number, LockOptions][])('acquires free keys in one call: %i keys, %j', async (count, options) => {
    const locks = await start(library.server(redis.server.url));
    const keys = keysUpTo(count);
    expect(
      await callsDuring(async () => {
        const lock = await locks.acquire(keys, options);
        expect(lock.keys).toEqual(keys);
        expect(lock.isHeld()).toBe(true);
        const tokens = [...lock.fencingTokens.values()];
        if (options.limit === undefined) expect(new Set(tokens).size).toBe(count);
        // Before the release.
        const stats = await redis.admin.info('commandstats');
        expect(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1]).toBe('1');
        expect(await lock.release()).toBe('released');
      }),
      // A call carries at most 16 releases. All are sent before the first is answered.
    ).toBe(1 + Math.ceil(count / 16));
  });

  it('resends the whole chain if the server has forgotten the script', async () => {
    const locks = await start(library.server(redis.server.url));
    const keys = keysUpTo(20);
    await redis.admin.script('FLUSH');
    await redis.admin.config('RESETSTAT');
    const lock = await locks.acquire(keys);
    expect(new Set(lock.fencingTokens.values()).size).toBe(20);
    expect(await lock.release()).toBe('released');
    const stats = await redis.admin.info('commandstats');
    expect(/cmdstat_eval:calls=(\d+)/.exec(stats)?.[1]).toBe('1');
  });

  it('needs one more call for each key that it waits for', async () => {
    const locks = await start(library.server(redis.server.url));
    const other = await start(library.server(redis.server.url));
    const keys = keysUpTo(20);
    const [one, two] = [await other.acquire(keys[3]!), await other.acquire(keys[11]!)];
    const events: string[] = [];
    for (const name of ['waiting', 'acquired', 'busy'] as const) {
      locks.events.on(name, ({ key }) => events.push(`${name} ${key}`));
    }
    const asked = locks.acquire(keys);
    await until(() => events.includes(`waiting ${keys[3]}`), 'the call waits for the first busy key');
    expect(events).toEqual([...keys.slice(0, 3).map((key) => `acquired ${key}`), `waiting ${keys[3]}`]);
    // No later key is on the server.
    expect((await other.admin.inspect(keys[4]!)) ?? (await other.admin.inspect(keys[19]!))).toBeNull();
    expect(await other.tryAcquire(keys[19]!, { wait: 0 }).then((lock) => lock?.release())).toBe('released');
    await one.release();
    await until(() => events.includes(`waiting ${keys[11]}`), 'the call waits for the second busy key');
    await two.release();
    const lock = await asked;
    expect(events.filter((each) => !each.startsWith('waiting'))).toEqual(keys.map((key) => `acquired ${key}`));
    expect(await lock.release()).toBe('released');
  });

  it.each([0, 10, 19])(
    'with wait: 0, is refused with one call, and leaves nothing: key %i of 20 is busy',
    async (busy) => {
      const locks = await start(library.server(redis.server.url));
      const other = await start(library.server(redis.server.url));
      const keys = keysUpTo(20);
      const held = await other.acquire(keys[busy]!);
      const asked = callsDuring(async () => {
        await expect(locks.acquire(keys, { wait: 0, minHold: 60_000 })).rejects.toMatchObject({ key: keys[busy] });
      });
      // Plus the releases of the keys that were granted.
      expect(await asked).toBe(1 + Math.ceil(busy / 16));
      await held.release();
      const lock = await other.tryAcquire(keys);
      expect(await lock?.release()).toBe('released');
    },
  );

  it('finds or releases its keys after a lost reply, and acquires them in the end', async () => {
    const proxy = await startTcpProxy(redis.server.port);
    try {
      const locks = await start({ ...library.server(`redis://127.0.0.1:${proxy.port}`), commandTimeout: 500 });
      const other = await start(library.server(redis.server.url));
      const keys = keysUpTo(20);
      proxy.loseReplies();
      const asked = locks.acquire(keys);
      await until(async () => (await other.admin.inspect(keys[19]!)) !== null, 'the chain was executed');
      const first = (await other.admin.inspect(keys[0]!))?.fencingToken;
      proxy.heal();
      const lock = await asked;
      expect(lock.fencingTokens.get(keys[0]!)).toBe(first);
      expect(lock.isHeld()).toBe(true);
      expect(await other.tryAcquire(keys[19]!)).toBeNull();
      expect(await lock.release()).toBe('released');
      await (await other.acquire(keys)).release();
    } finally {
      await proxy.close();
    }
  });

  it('an abort while the reply is in flight leaves no key locked', async () => {
    const proxy = await startTcpProxy(redis.server.port);
    try {
      const locks = await start({ ...library.server(`redis://127.0.0.1:${proxy.port}`), commandTimeout: '20s' });
      const other = await start(library.server(redis.server.url));
      const keys = keysUpTo(20);
      proxy.holdReplies();
      const controller = new AbortController();
      const asked = locks.acquire(keys, { signal: controller.signal });
      await until(async () => (await other.admin.inspect(keys[19]!)) !== null, 'the chain was executed');
      controller.abort(new Error('enough'));
      await expect(asked).rejects.toThrow('enough');
      expect(locks.admin.waiting()).toEqual([]);
      await (await other.acquire(keys)).release();
      proxy.passReplies();
    } finally {
      await proxy.close();
    }
  });

  it('a foreign value at one key fails the call with that error, and leaves no other key locked', async () => {
    const locks = await start(library.server(redis.server.url));
    const keys = keysUpTo(5);
    await redis.admin.hset(layout.lockOf(keys[2]!), 'not', 'a lock');
    await expect(locks.acquire(keys, { wait: 0 })).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', key: keys[2] });
    expect(locks.admin.held()).toEqual([]);
    for (const key of [0, 1, 3, 4]) expect(await redis.admin.exists(layout.lockOf(keys[key]!))).toBe(0);
  });

  it('confirms its keys together if a replica must acknowledge them', async () => {
    const replica = await startRedisServer({ args: ['--replicaof', '127.0.0.1', String(redis.server.port)] });
    try {
      await until(
        async () => (await redis.admin.info('replication')).includes('state=online'),
        'the replica is connected',
        60_000,
      );
      const locks = await start({ ...library.server(redis.server.url), waitReplicas: 1, commandTimeout: '30s' });
      const other = await start(library.server(redis.server.url));
      const keys = keysUpTo(20);
      const calls = await callsDuring(async () => {
        const lock = await locks.acquire(keys);
        expect(lock.isHeld()).toBe(true);
        expect(await lock.release()).toBe('released');
      });
      // The chain, two calls that confirm 16 and 4 locks, and two that release them.
      expect(calls).toBe(5);
      const held = await other.acquire(keys[10]!);
      const asked = locks.acquire(keys);
      await until(() => locks.admin.waiting().some(({ key }) => key === keys[10]), 'the call waits');
      await held.release();
      expect(await (await asked).release()).toBe('released');
    } finally {
      await Promise.all(started.splice(0).map((locks) => locks.stop()));
      await replica.stop();
    }
  }, 60_000);
});

describe.each([IOREDIS, NODE_REDIS])('several keys on a Redis Cluster, with %s', (library) => {
  it('chains keys that share a bucket, and acquires all keys in order', async () => {
    const cluster = await startRedisCluster({ replicas: 0 });
    try {
      const locks = await start({ ...library.cluster(cluster.addresses), commandTimeout: '10s' });
      const other = await start({ ...library.cluster(cluster.addresses), commandTimeout: '10s' });
      const keys = keysUpTo(40);
      const events: string[] = [];
      locks.events.on('acquired', ({ key }) => events.push(key));
      await (await locks.acquire(keys)).release();
      expect(events).toEqual(keys);
      // Keys of one bucket, adjacent in their order.
      const inOne = keysUpTo(400)
        .filter((key) => layout.bucketIn(layout.lockOf(key)) === 3)
        .slice(0, 20);
      const stats = () =>
        Promise.all(
          cluster.masters.map(async ({ admin }) =>
            Number(/cmdstat_evalsha:calls=(\d+)/.exec(await admin.info('commandstats'))?.[1] ?? 0),
          ),
        );
      const total = async () => (await stats()).reduce((sum, count) => sum + count, 0);
      const before = await total();
      const lock = await locks.acquire(inOne);
      expect((await total()) - before).toBe(1);
      expect(await other.tryAcquire([inOne[19]!, 'free'])).toBeNull();
      await expect(other.acquire([...inOne, ...keys], { wait: 0 })).rejects.toThrow(LockBusyError);
      expect(await lock.release()).toBe('released');
      await (await other.acquire([...inOne, ...keys])).release();
    } finally {
      await Promise.all(started.splice(0).map((locks) => locks.stop()));
      await cluster.stop();
    }
  }, 60_000);
});
