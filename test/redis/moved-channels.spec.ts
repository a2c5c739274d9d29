import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { hashSlotOf } from '../../lib/providers/redis/cluster-servers.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { type ClusterNode, type RedisCluster, startRedisCluster } from '../servers/redis-cluster.js';
import { IOREDIS, IOREDIS_5, NODE_REDIS, NODE_REDIS_5 } from './client-libraries.js';
import { startBackend, until } from './seam.js';

const layout = new KeyLayout('lock');
const BUCKET = 3;
const SLOT = hashSlotOf(String(BUCKET));

describe('the channels of a process that is idle', () => {
  let cluster: RedisCluster;

  beforeAll(async () => {
    cluster = await startRedisCluster();
  }, 60_000);
  afterAll(() => cluster.stop());

  const channelsOn = async ({ admin }: ClusterNode) =>
    (await admin.call('PUBSUB', ['SHARDCHANNELS', `${layout.counterOf(BUCKET)}*`])) as string[];
  const moveTo = async ({ id }: ClusterNode) => {
    for (const { admin } of cluster.masters) await admin.call('CLUSTER', ['SETSLOT', String(SLOT), 'NODE', id]);
  };

  it.each([IOREDIS, IOREDIS_5, NODE_REDIS, NODE_REDIS_5])(
    'are listened to again after their slot has moved away and come back, by %s',
    async (library) => {
      const home = cluster.masters[Math.floor((SLOT * 3) / 16_384)] as ClusterNode;
      const away = cluster.masters.find((master) => master !== home) as ClusterNode;
      const { backend } = await startBackend({ ...library.cluster(cluster.addresses), commandTimeout: '10s' });
      await until(async () => (await channelsOn(home)).length === 1, 'it listens');
      const [channel] = await channelsOn(home);
      // A waiter then gets no message about its grant, and finds it with its next request after a second.
      await moveTo(away);
      await moveTo(home);
      expect(await channelsOn(home)).toEqual([]);
      await until(async () => (await channelsOn(home)).length === 1, 'it listens again');
      expect(await channelsOn(home)).toEqual([channel]);
      await moveTo(away);
      await until(async () => (await channelsOn(away)).length === 1, 'it listens to the other master');
      await backend.close();
      await moveTo(home);
    },
    120_000,
  );
});
