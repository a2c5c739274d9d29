import { randomBytes } from 'node:crypto';
import { expect, afterAll, beforeAll, describe, it } from '@jest/globals';
import { Cluster } from 'ioredis';
import { Cluster as Cluster5 } from 'ioredis5';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { hashSlotOf } from '../../lib/providers/redis/cluster-servers.js';
import type { RedisClient } from '../../lib/providers/redis/index.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { startTcpProxy } from '../servers/tcp-proxy.js';
import { type ClusterNode, type RedisCluster, startRedisCluster, outrank } from '../servers/redis-cluster.js';
import { IOREDIS, NODE_REDIS, IOREDIS_5, NODE_REDIS_5 } from './client-libraries.js';
import {
  ask,
  granted,
  isSettled,
  RELEASE,
  request,
  type StartedBackend,
  startBackend,
  startWithFakeClock,
  type TestGrant,
  until,
  untilAnswered,
  untilWaiting,
} from './seam.js';

const layout = new KeyLayout('lock');
const bucketOf = (key: string) => layout.bucketIn(layout.lockOf(key));
const slotOf = (key: string) => hashSlotOf(String(bucketOf(key)));

// The tests share servers, so they run one after another.
describe.each([IOREDIS, NODE_REDIS])('Redis Cluster, with %s', (library) => {
  let cluster: RedisCluster;
  let one: StartedBackend;
  let two: StartedBackend;

  beforeAll(async () => {
    // Long enough that a slow node does not count as dead.
    cluster = await startRedisCluster({ replicas: 1, nodeTimeout: 3_000 });
    one = await startBackend({ ...library.cluster(cluster.addresses), commandTimeout: '10s' });
    two = await startBackend({
      ...library.cluster(cluster.addresses.slice(0, 1)),
      commandTimeout: '10s',
      waitReplicas: 1,
    });
  }, 60_000);
  afterAll(async () => {
    await one.backend.close();
    await two.backend.close();
    await cluster.stop();
  });

  const masterOf = (slot: number) => cluster.masters[Math.floor((slot * 3) / 16_384)] as ClusterNode;
  /** Returns one key on each master. */
  const spread = () =>
    cluster.masters.map((master) => {
      const key = Array.from({ length: 100 }, (_, index) => `k${index}`).find(
        (each) => masterOf(slotOf(each)) === master,
      );
      return key ?? '';
    });

  it('computes the slots of its buckets as Redis does', async () => {
    for (let bucket = 0; bucket < 16; bucket += 1) {
      const slot = await cluster.masters[0]?.admin.call('CLUSTER', ['KEYSLOT', layout.counterOf(bucket)]);
      expect(hashSlotOf(String(bucket))).toBe(slot);
    }
  });

  it('reaches its nodes at the addresses that the client maps them to', async () => {
    const wires = await Promise.all(cluster.addresses.map(({ port }) => startTcpProxy(port)));
    const nodes = wires.map(({ port }) => ({ host: '127.0.0.1', port }));
    const natMap = Object.fromEntries(
      cluster.addresses.map(({ host, port }, index) => [`${host}:${port}`, nodes[index]!]),
    );
    const { backend } = await startBackend({ ...library.cluster(nodes, { natMap }), commandTimeout: '10s' });
    const keys = spread();
    for (const key of keys) {
      expect(await backend.release(granted(await backend.acquire(request(key))), RELEASE)).toBe('released');
    }
    for (const wire of wires) wire.refuse();
    for (const key of keys) await expect(backend.acquire(request(key))).rejects.toThrow(LockUnavailableError);
    await backend.close();
    await Promise.all(wires.map((wire) => wire.close()));
  });

  it('hands off on every master, with one channel per bucket and none per key', async () => {
    const channels = async () => {
      const lists = cluster.masters.map(
        async ({ admin }) => (await admin.call('PUBSUB', ['SHARDCHANNELS'])) as string[],
      );
      return (await Promise.all(lists)).flat().length;
    };
    // The receiver's clock stands still, so it never polls: only a message can give it the lock.
    const receiver = await startWithFakeClock({ ...library.cluster(cluster.addresses), waitReplicas: 1 });
    await until(async () => (await channels()) === 3 * 16, 'all processes listen');
    for (const key of spread()) {
      const held = granted(await one.backend.acquire(request(key)));
      const before = receiver.events.length;
      const waiter = receiver.backend.acquire(request(key));
      await until(() => receiver.events.length > before, 'the receiver waits');
      await one.backend.release(held, RELEASE);
      const next = granted(await waiter);
      expect(next.fencingToken).toBeGreaterThan(held.fencingToken ?? 0n);
      await receiver.backend.release(next, RELEASE);
    }
    expect(await channels()).toBe(3 * 16);
    await receiver.backend.close();
  });

  it('ignores a message about a lock in a different bucket from its channel', async () => {
    const [first = '', second = ''] = spread();
    let channels: string[] = [];
    // Waits until the channels of the stopped process are gone.
    await until(async () => {
      const lists = cluster.masters.map(({ admin }) => admin.call('PUBSUB', ['SHARDCHANNELS']) as Promise<string[]>);
      channels = (await Promise.all(lists)).flat();
      return channels.length === 2 * 16;
    }, 'only the two processes listen');
    const [channel = ''] = channels;
    const process = channel.slice(channel.indexOf('}') + 1);
    // Writes a grant to an unknown id, as a lagging replica might remember it. The process releases it.
    const remember = async (key: string) => {
      const id = randomBytes(16).toString('hex');
      const lock = layout.lockOf(key);
      await masterOf(slotOf(key)).admin.set(lock, `c${'1'.repeat(16)}9999999999999${process}${id}`, 'PX', 60_000);
      return `${'1'.repeat(16)}${'2'.repeat(16)}013000:${id} ${lock}`;
    };
    const publish = (key: string, notice: string) =>
      masterOf(slotOf(key)).admin.call('SPUBLISH', [layout.counterOf(bucketOf(key)) + process, notice]);
    const [ofFirst, ofSecond] = [await remember(first), await remember(second)];
    await publish(second, ofFirst);
    await publish(second, ofSecond);
    const valueOf = (key: string) => masterOf(slotOf(key)).admin.get(layout.lockOf(key));
    await until(async () => (await valueOf(second)) === null, "the lock in the channel's bucket is released");
    for (const { backend } of [one, two]) await backend.inspect(first);
    expect(await valueOf(first)).not.toBeNull();
    await publish(first, ofFirst);
    await until(async () => (await valueOf(first)) === null, 'the lock is released');
  });

  it.each([
    ['6', Cluster],
    ['5', Cluster5],
  ])('accepts an ioredis %s client, and leaves it unchanged', async (_, Client) => {
    const client = new Client(cluster.addresses, { keyPrefix: 'app:', redisOptions: { connectionName: 'app' } });
    const typed: RedisClient = client;
    const { backend } = await startBackend({ client: typed });
    for (const key of spread()) await backend.release(granted(await backend.acquire(request(key))), RELEASE);
    await backend.close();
    expect(await client.set('x', '1')).toBe('OK');
    client.disconnect();
  });

  it('resends a request refused with MOVED to the new master; locks, tokens and the queue have moved with the slot', async () => {
    const key = 'moving';
    const slot = slotOf(key);
    const sibling = Array.from({ length: 1_000 }, (_, index) => `s${index}`).find(
      (each) => bucketOf(each) === bucketOf(key),
    );
    const from = masterOf(slot);
    const to = cluster.masters.find((master) => master !== from) as ClusterNode;
    const held = granted(await one.backend.acquire(request(key)));
    const before = two.events.length;
    const waiter = two.backend.acquire(request(key));
    await until(() => two.events.length > before, 'the second process waits');

    await to.admin.call('CLUSTER', ['SETSLOT', String(slot), 'IMPORTING', from.id]);
    await from.admin.call('CLUSTER', ['SETSLOT', String(slot), 'MIGRATING', to.id]);
    const migrate = async (keys: string[]) => {
      await from.admin.call('MIGRATE', ['127.0.0.1', String(to.server.port), '', '0', '5000', 'KEYS', ...keys]);
    };
    // The counter has moved and the lock has not, so neither node may grant anything.
    await migrate([layout.counterOf(bucketOf(key))]);
    const between = one.backend.acquire(request(sibling ?? ''));
    const renewed = one.backend.renew(held, 30_000);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(await isSettled(between)).toBe(false);
    for (let keys: string[]; ; await migrate(keys)) {
      keys = (await from.admin.call('CLUSTER', ['GETKEYSINSLOT', String(slot), '100'])) as string[];
      if (keys.length === 0) break;
    }
    for (const { admin } of [to, from, ...cluster.masters]) {
      await admin.call('CLUSTER', ['SETSLOT', String(slot), 'NODE', to.id]);
    }

    expect(await renewed).toMatchObject({ validUntil: expect.any(Number) });
    const grant = granted(await between);
    expect(grant.fencingToken).toBeGreaterThan(held.fencingToken ?? 0n);
    expect(await to.admin.get(layout.lockOf(key))).toContain(held.holder);
    expect(await one.backend.release(held, RELEASE)).toBe('released');
    const next = granted(await waiter);
    expect(next.fencingToken).toBeGreaterThan(grant.fencingToken ?? 0n);
    await two.backend.release(next, RELEASE);
    await one.backend.release(grant, RELEASE);
  }, 60_000);

  it('a reader that leaves during a slot migration releases its lock', async () => {
    const key = spread().find((each) => slotOf(each) !== slotOf('moving')) ?? '';
    const slot = String(slotOf(key));
    const from = masterOf(Number(slot));
    const to = cluster.masters.find((master) => master !== from) as ClusterNode;
    const [first, second] = [request(key, { mode: 'shared' }), request(key, { mode: 'shared' })];
    for (const each of [first, second]) granted(await one.backend.acquire(each));
    await to.admin.call('CLUSTER', ['SETSLOT', slot, 'IMPORTING', from.id]);
    await from.admin.call('CLUSTER', ['SETSLOT', slot, 'MIGRATING', to.id]);
    try {
      expect(await one.backend.release(first, RELEASE)).toBe('released');
      expect(await one.backend.release(second, RELEASE)).toBe('released');
    } finally {
      for (const { admin } of [to, from]) await admin.call('CLUSTER', ['SETSLOT', slot, 'STABLE']);
    }
  }, 60_000);

  it.each([
    ['reader', { mode: 'shared' }],
    ['limited holder', { mode: 'limited', limited: { limit: 2, weight: 1 } }],
  ] as const)(
    'a lone %s is renewed during a slot migration, and keeps writers out',
    async (_, options) => {
      const key = spread().find((each) => slotOf(each) !== slotOf('moving')) ?? '';
      const slot = String(slotOf(key));
      const from = masterOf(Number(slot));
      const to = cluster.masters.find((master) => master !== from) as ClusterNode;
      const held = granted(await one.backend.acquire(request(key, options)));
      await to.admin.call('CLUSTER', ['SETSLOT', slot, 'IMPORTING', from.id]);
      await from.admin.call('CLUSTER', ['SETSLOT', slot, 'MIGRATING', to.id]);
      try {
        expect(await one.backend.renew(held, 60_000)).toMatchObject({ validUntil: expect.any(Number) });
        expect(await from.admin.pttl(layout.lockOf(key))).toBeGreaterThan(30_000);
      } finally {
        for (const { admin } of [to, from]) await admin.call('CLUSTER', ['SETSLOT', slot, 'STABLE']);
      }
      expect(await two.backend.acquire(request(key, { wait: 0 }))).toBe('busy');
      expect(await one.backend.release(held, RELEASE)).toBe('released');
    },
    60_000,
  );

  it('when a master is killed, a replica takes over its locks, and locks on other masters are unaffected', async () => {
    const [lost = '', ...others] = spread();
    const master = masterOf(slotOf(lost));
    const held = request(lost, { lease: 600_000 });
    const { fencingToken } = granted(await two.backend.acquire(held));
    // Through the provider that waits for no replica: the promoted one has none.
    const again = request(lost, { id: held.id, lease: 600_000 });
    const found = granted(await one.backend.acquire(again));
    expect(found.fencingToken).toBe(fencingToken);
    const before = one.events.length;
    const waiter = ask(one.backend, request(lost, { wait: 600_000 }));
    await until(() => one.events.length > before, 'the process waits');
    master.server.signal('SIGKILL');
    const begun = performance.now();
    await until(() => one.events.some(({ type }) => type === 'unavailable'), 'the process has noticed the outage');
    for (const key of others) await one.backend.release(granted(await one.backend.acquire(request(key))), RELEASE);
    const renewed = await untilAnswered(() => one.backend.renew(found, 600_000), 60_000);
    console.info(`Master of a Cluster killed: the lock was renewed after ${Math.round(performance.now() - begun)} ms.`);
    expect(renewed).toMatchObject({ validUntil: expect.any(Number) });
    expect(await untilAnswered(() => one.backend.release(again, RELEASE))).toBe('released');
    const next = granted(await waiter);
    expect(next.fencingToken).toBeGreaterThan(fencingToken ?? 0n);
    await one.backend.release(next, RELEASE);
  }, 120_000);
});

describe('channels of an idle process', () => {
  let cluster: RedisCluster;

  beforeAll(async () => {
    cluster = await startRedisCluster();
  }, 60_000);
  afterAll(() => cluster.stop());

  // Each library uses its own bucket, whose slot no earlier test has moved.
  it.each([IOREDIS, IOREDIS_5, NODE_REDIS, NODE_REDIS_5].map((library, bucket) => [library, bucket] as const))(
    'are resubscribed after their slot moves away and back, with %s',
    async (library, bucket) => {
      const slot = hashSlotOf(String(bucket));
      const home = Math.floor((slot * 3) / 16_384);
      const [source, target] = [home, (home + 1) % 3].map((index) => cluster.masters[index]) as [
        ClusterNode,
        ClusterNode,
      ];
      const channelsOn = async ({ admin }: ClusterNode) =>
        (await admin.call('PUBSUB', ['SHARDCHANNELS', `${layout.counterOf(bucket)}*`])) as string[];
      const setOwner = ({ admin }: ClusterNode, { id }: ClusterNode) =>
        admin.call('CLUSTER', ['SETSLOT', String(slot), 'NODE', id]);
      const { backend } = await startBackend({ ...library.cluster(cluster.addresses), commandTimeout: '10s' });
      await until(async () => (await channelsOn(source)).length === 1, 'the process listens');
      const [channel] = await channelsOn(source);
      // A waiter now gets no message about its grant, and finds it with its next request a second later.
      await setOwner(source, target);
      expect(await channelsOn(source)).toEqual([]);
      await setOwner(source, source);
      await until(async () => (await channelsOn(source)).length === 1, 'the process listens again');
      expect(await channelsOn(source)).toEqual([channel]);
      await outrank(target, cluster);
      for (const master of [target, source, ...cluster.masters]) await setOwner(master, target);
      await until(async () => (await channelsOn(target)).length === 1, 'the process listens on the other master');
      await backend.close();
    },
    120_000,
  );
});

it('confirms a grant that a Cluster without sharded channels has broadcast, because another node may have undone it', async () => {
  // A stand-in for Redis 6.2: without SSUBSCRIBE, the process subscribes to plain channels.
  const cluster = await startRedisCluster({ nodeTimeout: 5_000, args: ['--rename-command', 'SSUBSCRIBE', ''] });
  // The clock stands still, so the waiter doesn't poll on its own.
  const { backend, events } = await startWithFakeClock(IOREDIS.cluster(cluster.addresses));
  const index = Math.floor((slotOf('k') * 3) / 16_384);
  const owner = cluster.masters[index] as ClusterNode;
  const other = cluster.masters[(index + 1) % 3] as ClusterNode;
  const held = granted(await backend.acquire(request('k')));
  const ask = request('k');
  let answer: TestGrant | 'busy' | undefined;
  const waiter = backend.acquire(ask);
  waiter.then(
    (each) => (answer = each),
    () => undefined,
  );
  await untilWaiting({ backend, events });
  const [member = ''] = await owner.admin.zrange(`${layout.lockOf('k')}}q`, '0', '-1');
  const channel = layout.counterOf(bucketOf('k')) + member.slice(1, 13);
  await until(
    async () => ((await owner.admin.pubsub('CHANNELS')) as string[]).includes(channel),
    'the process is subscribed',
  );
  const calls = async () =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(await owner.admin.info('commandstats'))?.[1] ?? 0);
  const before = await calls();
  const [seconds, micros] = await owner.admin.time();
  const now = `${seconds}${String(micros).padStart(6, '0')}`;
  await other.admin.publish(channel, `${now}${now}013000:${ask.id} ${layout.lockOf('k')}`);
  // The confirmation, and the poll after it has failed.
  await until(async () => answer !== undefined || (await calls()) >= before + 2, 'the message was handled');
  expect(answer).toBeUndefined();
  await backend.release(held, RELEASE);
  expect(granted(await waiter).fencingToken).toBeGreaterThan(held.fencingToken ?? 0n);
  await backend.close();
  await cluster.stop();
}, 120_000);
