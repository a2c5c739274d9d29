import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { hashSlotOf } from '../../lib/providers/redis/cluster-servers.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { type ClusterNode, outrank, type RedisCluster, startRedisCluster } from '../servers/redis-cluster.js';
import { IOREDIS, IOREDIS_5, NODE_REDIS, NODE_REDIS_5 } from './client-libraries.js';
import { startBackend, until } from './seam.js';

const layout = new KeyLayout('lock');

describe('the channels of a process that is idle', () => {
  let cluster: RedisCluster;

  beforeAll(async () => {
    cluster = await startRedisCluster();
  }, 60_000);
  afterAll(() => cluster.stop());

  // Each has a bucket of its own, which nothing has moved before.
  it.each([IOREDIS, IOREDIS_5, NODE_REDIS, NODE_REDIS_5].map((library, bucket) => [library, bucket] as const))(
    'are listened to again after their slot has moved away and come back, by %s',
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
      await until(async () => (await channelsOn(source)).length === 1, 'it listens');
      const [channel] = await channelsOn(source);
      // A waiter then gets no message about its grant, and finds it with its next request after a second.
      await setOwner(source, target);
      expect(await channelsOn(source)).toEqual([]);
      await setOwner(source, source);
      await until(async () => (await channelsOn(source)).length === 1, 'it listens again');
      expect(await channelsOn(source)).toEqual([channel]);
      await outrank(target, cluster);
      for (const master of [target, source, ...cluster.masters]) await setOwner(master, target);
      await until(async () => (await channelsOn(target)).length === 1, 'it listens to the other master');
      await backend.close();
    },
    120_000,
  );
});
