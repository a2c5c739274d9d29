import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { hashSlotOf } from '../../lib/providers/redis/cluster/hash-slot.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { type ClusterNode, type RedisCluster, startRedisCluster } from '../servers/redis-cluster.js';
import {
  granted,
  RELEASE,
  request,
  type StartedProvider,
  startProvider,
  until,
  untilAnswered,
  untilWaiting,
} from './seam.js';

const layout = new KeyLayout('lock');
const slotOf = (key: string) => hashSlotOf(String(layout.bucketIn(layout.lockOf(key))));

describe('what goes wrong in a Redis Cluster', () => {
  let cluster: RedisCluster;
  const providers: StartedProvider[] = [];

  afterEach(async () => {
    await Promise.all(providers.splice(0).map(({ provider }) => provider.stop()));
  });

  const masterOf = (key: string) => cluster.masters[Math.floor((slotOf(key) * 3) / 16_384)] as ClusterNode;
  const keyOn = (master: ClusterNode) =>
    Array.from({ length: 100 }, (_, index) => `k${index}`).find((key) => masterOf(key) === master) ?? '';
  const start = async (options: object = {}): Promise<StartedProvider> => {
    const started = await startProvider({ cluster: cluster.addresses, commandTimeout: '500ms', ...options });
    providers.push(started);
    return started;
  };

  describe('a master that hangs, with a replica', () => {
    beforeAll(async () => {
      cluster = await startRedisCluster({ replicas: 1 });
    }, 30_000);
    afterAll(() => cluster.stop());

    it('the replica takes over its holds; when it wakes up, nobody believes what it grants', async () => {
      const one = await start();
      const two = await start();
      const master = cluster.masters[0] as ClusterNode;
      const key = keyOn(master);
      const held = granted(await one.provider.acquire(request(key)));
      const waiter = two.provider.acquire(request(key));
      await untilWaiting(two);
      await until(async () => (await master.admin.wait(1, 1_000)) === 1, 'the replica has it');
      master.server.signal('SIGSTOP');
      const begun = performance.now();
      const moved = await untilAnswered(() => one.provider.renew([{ grant: held, lease: 30_000 }]), 20_000);
      expect(moved).toMatchObject([{ validUntil: expect.any(Number) }]);
      console.info(`Master of a Cluster hung: the hold was renewed after ${Math.round(performance.now() - begun)} ms.`);
      expect(one.events.map(({ type }) => type)).toEqual(expect.arrayContaining(['unavailable', 'recovered']));
      // Left unread in its socket are the asks of both, sent while they had not noticed.
      master.server.signal('SIGCONT');
      const asks: Promise<unknown>[] = [];
      for (const end = performance.now() + 500; performance.now() < end;) {
        asks.push(two.provider.acquire(request(key, { wait: 0 })).catch(() => 'unavailable'));
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      expect([...new Set(await Promise.all(asks))]).toEqual(['busy']);
      expect(await untilAnswered(() => one.provider.release(held, RELEASE))).toBe('released');
      const next = granted(await waiter);
      expect(next.fencingToken).toBeGreaterThan(held.fencingToken ?? 0n);
      await two.provider.release(next, RELEASE);
    }, 40_000);
  });

  describe('masters without replicas', () => {
    beforeAll(async () => {
      cluster = await startRedisCluster();
      for (const { admin } of cluster.masters) {
        await admin.call('ACL', ['SETUSER', 'locks', 'on', '>secret', '~*', '&*', '+@all']);
      }
    }, 30_000);
    afterAll(() => cluster.stop());

    const channels = async (master: ClusterNode) =>
      ((await master.admin.call('PUBSUB', ['SHARDCHANNELS'])) as string[]).length;
    const give = async (slot: number, to: ClusterNode, nodes: readonly ClusterNode[]) => {
      for (const { admin } of nodes) await admin.call('CLUSTER', ['SETSLOT', String(slot), 'NODE', to.id]);
    };

    it('one that hangs is noticed in seconds; its holds are valid until their deadline, and go on when it wakes up', async () => {
      const one = await start();
      const master = cluster.masters[1] as ClusterNode;
      const key = keyOn(master);
      const held = granted(await one.provider.acquire(request(key)));
      master.server.signal('SIGSTOP');
      try {
        const begun = performance.now();
        expect(await one.provider.renew([{ grant: held, lease: 30_000 }])).toEqual(['unknown']);
        await expect(one.provider.acquire(request(key))).rejects.toThrow(/did not answer/);
        expect(performance.now() - begun).toBeLessThan(3_000);
        expect(one.events).toContainEqual(expect.objectContaining({ type: 'unavailable' }));
        expect(held.validUntil).toBeGreaterThan(performance.now());
      } finally {
        master.server.signal('SIGCONT');
      }
      const renewed = await untilAnswered(() => one.provider.renew([{ grant: held, lease: 30_000 }]), 10_000);
      expect(renewed).toMatchObject([{ validUntil: expect.any(Number) }]);
      await untilAnswered(() => one.provider.release(held, RELEASE));
    }, 30_000);

    it('a channel that the new master of a slot refuses at first is asked for again', async () => {
      const one = await start();
      const [from, to] = cluster.masters as [ClusterNode, ClusterNode];
      const buckets = [...new Set(Array.from({ length: 100 }, (_, index) => slotOf(`k${index}`)))];
      const [late = 0, other = 0] = buckets.filter((slot) => Math.floor((slot * 3) / 16_384) === 0);
      const before = await channels(to);
      // The one who gives knows of both, the one who takes of one: that one's locks make the provider look.
      await give(late, to, [from]);
      await give(other, to, [to, from]);
      const key = Array.from({ length: 100 }, (_, index) => `k${index}`).find((each) => slotOf(each) === other) ?? '';
      await one.provider.release(granted(await one.provider.acquire(request(key))), RELEASE);
      await until(async () => (await channels(to)) > before, 'it listens for the one');
      await give(late, to, [to]);
      await until(async () => (await channels(to)) === before + 2, 'it listens for both', 10_000);
    }, 30_000);

    it('where nobody tells the map any more, an ask is refused in time, and no rejection is left alone', async () => {
      const one = await start({ options: { redisOptions: { username: 'locks', password: 'secret' } } });
      const [to, , from] = cluster.masters as [ClusterNode, ClusterNode, ClusterNode];
      const key = keyOn(from);
      const rejections: unknown[] = [];
      const onRejection = (reason: unknown) => rejections.push(reason);
      process.on('unhandledRejection', onRejection);
      for (const { admin } of cluster.masters) await admin.call('ACL', ['SETUSER', 'locks', '-cluster']);
      await give(slotOf(key), to, [to, from]);
      await expect(one.provider.acquire(request(key))).rejects.toThrow(/MOVED/);
      for (const { admin } of cluster.masters) await admin.call('ACL', ['SETUSER', 'locks', '+cluster']);
      const grant = granted(await one.provider.acquire(request(key)));
      await one.provider.release(grant, RELEASE);
      process.off('unhandledRejection', onRejection);
      expect(rejections).toEqual([]);
    }, 30_000);
  });
});
