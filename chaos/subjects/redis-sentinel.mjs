import { load, managed } from './lock-manager.mjs';

const LEASE = 800;

export const title = 'redis, Sentinel';
/** A failover takes seconds: docs/providers/redis.md. */
export const recovery = 15_000;
export const lifetime = LEASE;
/** When it is connected again, or at the deadline: docs/providers/redis.md. */
export const toldWithin = LEASE;
export const fair = false;
export const nemeses = ['worker killed', 'worker paused', 'event loop blocked', 'fail-over'];
/** Replication is asynchronous: the promoted replica may not know the last locks. */
export const allows = { 'fail-over': ['overlap'] };

export async function startBackend() {
  const { Redis } = await import('ioredis');
  const { startRedisSentinels } = await import('../../test/servers/redis-sentinels.ts');
  const redis = await startRedisSentinels();
  const all = [redis.master, ...redis.replicas];
  const client = () => new Redis({ ...redis.options, maxRetriesPerRequest: null });
  return {
    servers: all,
    address: redis.options,
    async master() {
      const sentinel = new Redis({ port: redis.sentinels[0].port, protocol: 2 });
      const [, port] = await sentinel.call('SENTINEL', ['GET-MASTER-ADDR-BY-NAME', redis.options.name]);
      sentinel.disconnect();
      return all.find((server) => server.port === Number(String(port)));
    },
    async leftovers() {
      const admin = client();
      admin.on('error', () => undefined);
      const names = await admin.keys('lock:*');
      admin.disconnect();
      return names.filter((name) => /^lock:\{\d+\}:[^}]*$|\}q$/.test(name));
    },
    stop: () => redis.stop(),
  };
}

export async function connect({ library, address }) {
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const provider = new RedisLockProvider({ options: address, commandTimeout: 500 });
  return managed({ library, provider, options: { lease: LEASE }, lifetime: LEASE });
}
