import { LockUnavailableError } from '../../lib/api/errors.js';
import type { LockInfo } from '../../lib/api/lock-info.js';
import type { AcquireRequest } from '../../lib/api/lock-provider.js';
import { silentLogger } from '../../lib/api/logger.js';
import { withPrefix, systemRandom } from '../../lib/core/toolkit/random.js';
import type { RedisBackend } from '../../lib/providers/redis/redis-backend.js';
import { hashSlotOf } from '../../lib/providers/redis/cluster-servers.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { type RedisCluster, startRedisCluster } from '../servers/redis-cluster.js';
import {
  granted,
  redisForTests,
  RELEASE,
  request,
  type StartedBackend,
  startBackend,
  twoProcesses,
  until,
} from './seam.js';
import type { DirectBackend } from '../direct-backend.js';

const LONG = { lease: 600_000 };

async function listOf(backend: DirectBackend<RedisBackend>, prefix = ''): Promise<LockInfo[]> {
  const locks: LockInfo[] = [];
  for await (const lock of backend.list({ prefix })) locks.push(lock);
  return locks.sort((one, other) => (one.key < other.key ? -1 : 1));
}

/** Starts a backend with its own instance, and a function that acquires through it. */
async function startInstance(options: Parameters<typeof startBackend>[0], digit: string, namespace = 'lock') {
  const id = digit.repeat(12);
  const random = withPrefix(systemRandom(), id);
  const started = await startBackend(options, { namespace, random, instance: { id, name: `instance-${digit}` } });
  await started.backend.register();
  const take = async (key: string, terms: Partial<AcquireRequest> = {}) =>
    granted(await started.backend.acquire(request(key, { ...LONG, id: random.id(), ...terms })));
  return { ...started, random, take };
}

describe('the list of all locks on one server', () => {
  const redis = redisForTests();

  it('finds the namespaces in which locks are held', async () => {
    const ann = await startInstance({ url: redis.server.url }, 'a', 'lock');
    const bob = await startInstance({ url: redis.server.url }, 'b', 'shop.eu-1');
    expect(await ann.backend.namespaces()).toEqual([]);
    await bob.take('order:{1}:2', { mode: 'shared' });
    await ann.backend.release(await ann.take('free'), RELEASE);
    await redis.admin.set('queue:{7}x:foreign', '1');
    expect(await ann.backend.namespaces()).toEqual(['shop.eu-1']);
    await Promise.all([ann.backend.close(), bob.backend.close()]);
  });

  it('contains a handed-off lock that is not confirmed, but none whose provisional lease is over', async () => {
    const { backend } = await startInstance({ url: redis.server.url }, 'a');
    const now = Date.now();
    const provisional = (ends: number) => `c${now}000${ends}${'e'.repeat(12)}${'f'.repeat(32)}`;
    await redis.admin.set('lock:{1}:handed-off', provisional(now + 60_000));
    await redis.admin.set('lock:{1}:over', provisional(now - 1));
    for (const [key, ...ends] of [
      ['limited', now - 1, now + 60_000],
      ['unlimited', now - 1],
    ] as const) {
      await redis.admin.set(`lock:{1}:${key}`, `l${now}000 1 3`);
      for (const [index, each] of ends.entries()) {
        await redis.admin.zadd(`lock:{1}:${key}}r`, each, `h${String(index).repeat(32)} 1 3`);
      }
    }
    await redis.admin.set('lock:{1}:unread', `s${now}000`);
    expect(await listOf(backend)).toMatchObject([
      { key: 'handed-off', holders: 1, instances: ['f'.repeat(12)], since: new Date(now) },
      { key: 'limited', holders: 1, used: 1 },
    ]);
    await backend.close();
  });

  it('contains locks with hundreds of holders, and reads about one of them per call', async () => {
    const { backend } = await startInstance({ url: redis.server.url }, 'a');
    const now = Date.now();
    const records = Array.from({ length: 400 }, (_, index) => [now + 60_000, `h${index}${'f'.repeat(32)} 1 1000`]);
    for (let lock = 0; lock < 20; lock += 1) {
      await redis.admin.set(`lock:{1}:pool${lock}`, `l${now}000 1 1000`);
      await redis.admin.zadd(`lock:{1}:pool${lock}}r`, ...records.flat());
    }
    await redis.admin.config('RESETSTAT');
    const locks = await listOf(backend);
    expect(locks.map(({ holders }) => holders)).toEqual(Array.from({ length: 20 }, () => 400));
    const [, calls] = /cmdstat_evalsha:calls=(\d+)/.exec(await redis.admin.info('commandstats')) ?? [];
    expect(Number(calls)).toBeGreaterThanOrEqual(20);
    await backend.close();
  });

  it('has no start time for a lock whose token was counted ahead of the clock', async () => {
    const { backend, take } = await startInstance({ url: redis.server.url }, 'a');
    await redis.admin.set('lock:{0}', '8000000000000000');
    await take('k');
    expect(await listOf(backend)).toMatchObject([{ key: 'k', since: null }]);
    await backend.close();
  });

  it('names an instance by its id if its name is not recorded; a name is recorded for a day', async () => {
    const { backend, take } = await startInstance({ url: redis.server.url }, 'a');
    await take('k');
    const [record = ''] = await redis.admin.keys('*instance*');
    expect(await redis.admin.pttl(record)).toBeLessThanOrEqual(86_400_000);
    expect(await redis.admin.pttl(record)).toBeGreaterThan(86_000_000);
    await redis.admin.del(record);
    expect(await listOf(backend)).toMatchObject([{ key: 'k', instances: ['aaaaaaaaaaaa'] }]);
    await backend.close();
  });

  it('skips what is not a lock, and logs a warning that names it', async () => {
    const warnings: string[] = [];
    const logger = { ...silentLogger, warn: (message: string) => warnings.push(message) };
    const { backend } = await startBackend({ url: redis.server.url }, { logger });
    granted(await backend.acquire(request('real', LONG)));
    for (const value of ['hello', '', '42', 'c', 'x']) {
      await redis.admin.set('lock:{1}:foreign', value);
      expect((await listOf(backend)).map(({ key }) => key)).toEqual(['real']);
      expect(warnings.splice(0)).toEqual([expect.stringContaining('"lock:{1}:foreign" is not a lock')]);
    }
    await redis.admin.del('lock:{1}:foreign');
    await redis.admin.hset('lock:{1}:foreign', 'a', 'b');
    expect(await listOf(backend)).toHaveLength(1);
    expect(warnings).toHaveLength(1);
  });

  it('matches a prefix literally, within its own namespace', async () => {
    const app = await startInstance({ url: redis.server.url }, 'a', 'app');
    const app2 = await startInstance({ url: redis.server.url }, 'b', 'app2');
    const hash = `~~${'0'.repeat(64)}`;
    const keys = [
      '*',
      '?x',
      '[ab]',
      'a',
      '\\',
      '\\*',
      '%3A',
      '~',
      '}q',
      'a}q',
      '{0}:a',
      'line\nbreak',
      '🔒',
      '^-',
      ' ',
    ];
    for (const key of keys) await app.take(key);
    await app2.take('a2');
    // Records that are not ours, or not locks.
    await redis.admin.set('app:{16}:a', 'p');
    await redis.admin.set('app:{x}:a', 'p');
    await redis.admin.set('app:a', 'p');
    const listed = async (prefix?: string) => (await listOf(app.backend, prefix)).map(({ key }) => key);
    expect(await listed()).toEqual([...keys].sort());
    for (const prefix of [...keys, '[', 'a}', '{', 'line', '\\', 'A', hash, 'x'.repeat(600)]) {
      expect([prefix, await listed(prefix)]).toEqual([prefix, keys.filter((key) => key.startsWith(prefix)).sort()]);
    }
    await app.take('x'.repeat(600));
    expect(await listed()).toContainEqual(expect.stringMatching(/^~~[0-9a-f]{64}$/));
    expect(await listOf(app2.backend)).toMatchObject([{ key: 'a2' }]);
    await Promise.all([app.backend.close(), app2.backend.close()]);
  });

  it('reads 20 000 locks in small calls, page by page', async () => {
    const { backend } = await startInstance({ url: redis.server.url }, 'a');
    const fill = redis.admin.pipeline();
    const value = (index: number) => `p${1_700_000_000_000_000 + index}${'f'.repeat(32)}`;
    for (let index = 0; index < 20_000; index += 1) fill.set(`lock:{${index % 16}}:order:${index}`, value(index));
    await fill.exec();
    await redis.admin.config('RESETSTAT');
    const keys = new Set<string>();
    const list = backend.list({ prefix: 'order:' })[Symbol.asyncIterator]();
    await list.next();
    const commands = async () => {
      const stats = await redis.admin.info('commandstats');
      return (name: string) => Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
    };
    // Nothing is read ahead of the consumer.
    expect((await commands())('evalsha')).toBe(1);
    const listed: WeakRef<object>[] = [];
    for (let next = await list.next(); !next.done; next = await list.next()) {
      keys.add(next.value.key);
      listed.push(new WeakRef(next.value));
      if (keys.size % 5_000 > 0) continue;
      await new Promise((resolve) => setImmediate(resolve));
      globalThis.gc?.();
      // A page of SCAN may contain somewhat more than requested.
      expect(listed.filter((lock) => lock.deref() !== undefined).length).toBeLessThan(2_000);
    }
    expect(keys.size).toBe(19_999);
    const count = await commands();
    expect(count('keys')).toBe(0);
    expect(count('scan')).toBeGreaterThanOrEqual(40);
    expect(count('evalsha')).toBeGreaterThanOrEqual(20_000 / 32);
    await backend.close();
  }, 60_000);

  describe('when the server becomes unreachable halfway', () => {
    const processes = twoProcesses(redis);
    const begin = async ({ backend }: StartedBackend) => {
      for (let index = 0; index < 100; index += 1) {
        granted(await processes.steady.backend.acquire(request(`k${index}`, LONG)));
      }
      const list = backend.list({ prefix: '' })[Symbol.asyncIterator]();
      await list.next();
      return async () => {
        while (!(await list.next()).done);
      };
    };

    it('throws LockUnavailableError', async () => {
      const rest = await begin(processes.shaky);
      processes.proxy.refuse();
      await until(() => processes.shaky.events.some(({ type }) => type === 'unavailable'), 'the outage is noticed');
      await expect(rest()).rejects.toThrow(LockUnavailableError);
      await expect(listOf(processes.shaky.backend)).rejects.toThrow(
        /Could not list all locks .*: Redis did not respond/,
      );
    });

    it('does not continue on a new connection, which may lead to another server', async () => {
      const rest = await begin(processes.shaky);
      processes.proxy.refuse();
      await until(() => processes.shaky.events.some(({ type }) => type === 'unavailable'), 'the outage is noticed');
      processes.proxy.admit();
      await until(() => processes.shaky.events.some(({ type }) => type === 'recovered'), 'the connection is back');
      await expect(rest()).rejects.toThrow(LockUnavailableError);
      expect(await listOf(processes.shaky.backend)).toHaveLength(100);
    });
  });
});

describe('the list of all locks in a Cluster', () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startRedisCluster({ nodeTimeout: 3_000 });
  }, 60_000);
  afterAll(() => cluster.stop());

  it('fails rather than miss a slot that moves to a master already read', async () => {
    const ann = await startInstance({ cluster: cluster.addresses, commandTimeout: '2s' }, 'c', 'moving');
    const layout = new KeyLayout('moving');
    const slotOf = (key: string) => hashSlotOf(String(layout.bucketIn(layout.lockOf(key))));
    const masterOf = (key: string) => cluster.masters[Math.floor((3 * slotOf(key)) / 16_384)]!;
    const keys = Array.from({ length: 60 }, (_, index) => `k${index}`);
    await Promise.all(keys.map((key) => ann.take(key)));
    const list = ann.backend.list({ prefix: '' })[Symbol.asyncIterator]();
    const first = (await list.next()).value as LockInfo;
    const to = masterOf(first.key);
    const moved = keys.find((key) => masterOf(key) !== to)!;
    const [from, slot] = [masterOf(moved), String(slotOf(moved))];
    await to.admin.call('CLUSTER', ['SETSLOT', slot, 'IMPORTING', from.id]);
    await from.admin.call('CLUSTER', ['SETSLOT', slot, 'MIGRATING', to.id]);
    const names = (await from.admin.call('CLUSTER', ['GETKEYSINSLOT', slot, '1000'])) as string[];
    await from.admin.call('MIGRATE', ['127.0.0.1', String(to.server.port), '', '0', '5000', 'KEYS', ...names]);
    for (const { admin } of cluster.masters) await admin.call('CLUSTER', ['SETSLOT', slot, 'NODE', to.id]);
    const rest = async () => {
      while (!(await list.next()).done);
    };
    await expect(rest()).rejects.toThrow(LockUnavailableError);
    expect((await listOf(ann.backend)).map(({ key }) => key)).toEqual([...keys].sort());
    await ann.backend.close();
  }, 60_000);

  it('contains the locks of every master, and fails rather than return a part', async () => {
    const options = { cluster: cluster.addresses, commandTimeout: '2s' };
    const ann = await startInstance(options, 'a');
    const bob = await startInstance(options, 'b');
    const keys = Array.from({ length: 200 }, (_, index) => `k${index}`);
    await Promise.all(keys.map((key) => ann.take(key)));
    await bob.take('b', { mode: 'limited', limited: { limit: 2, weight: 1 } });
    const locks = await listOf(bob.backend, 'k');
    expect(locks.map(({ key }) => key)).toEqual([...keys].sort());
    expect(new Set(locks.flatMap(({ instances }) => instances))).toEqual(new Set(['instance-a']));
    expect(await listOf(ann.backend, 'b')).toMatchObject([{ key: 'b', instances: ['instance-b'], used: 1 }]);
    const list = bob.backend.list({ prefix: '' })[Symbol.asyncIterator]();
    await list.next();
    cluster.masters[2]?.server.signal('SIGSTOP');
    const rest = async () => {
      while (!(await list.next()).done);
    };
    await expect(rest()).rejects.toThrow(LockUnavailableError);
    cluster.masters[2]?.server.signal('SIGCONT');
    await Promise.all([ann.backend.close(), bob.backend.close()]);
  }, 60_000);
});
