import { load, managed } from './lock-manager.mjs';

const LEASE = 800;

export const title = 'redis, Sentinel';
/** A failover takes seconds. */
export const recovery = 15_000;
export const lifetime = LEASE;
/** On reconnect, or at the deadline: docs/how-it-works/redis.md, "Failover". */
export const noticedWithin = LEASE;
export const fair = false;
export const faults = ['worker killed', 'worker paused', 'event loop blocked', 'failover'];
/** Replication is asynchronous, so a promoted replica may lack the latest locks. */
export const allows = { failover: ['overlap'] };
export { excuse } from './redis-cluster.mjs';

export async function startBackend() {
  const { Redis } = await import('ioredis');
  const { lockKeys } = await import('./redis-node.mjs');
  const { startRedisSentinels } = await import('../../test/servers/redis-sentinels.ts');
  const redis = await startRedisSentinels();
  const all = [redis.master, ...redis.replicas];
  return {
    servers: all,
    address: redis.options,
    async master() {
      const sentinel = new Redis({ port: redis.sentinels[0].port, protocol: 2 });
      const [, port] = await sentinel.call('SENTINEL', ['GET-MASTER-ADDR-BY-NAME', redis.options.name]);
      sentinel.disconnect();
      return all.find((server) => server.port === Number(String(port)));
    },
    async remainingLocks() {
      const admin = new Redis({ ...redis.options, maxRetriesPerRequest: null });
      admin.on('error', () => undefined);
      const remaining = await lockKeys(admin);
      admin.disconnect();
      return remaining;
    },
    stop: () => redis.stop(),
  };
}

export async function connect({ library, address }) {
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const provider = new RedisLockProvider({ options: address, commandTimeout: 500 });
  return managed({ library, provider, options: { lease: LEASE }, lifetime: LEASE });
}
