import { load, managed } from './lock-manager.mjs';

const LEASE = 800;

export const title = 'redis';
/** A frozen receiver costs a provisional lease, 3 s or the lease if that is shorter; waiters ask each second. */
export const recovery = LEASE + 3_000 + 1_000;
/** A queue lives for 10 s after the last ask: docs/providers/redis.md. A dead process may be in it for so long. */
export const forgets = 10_000 + 1_000;
export const lifetime = LEASE;
/** By the next renewal, or at the deadline where none is answered: docs/providers/redis.md. */
export const toldWithin = LEASE;
export const fair = true;
export const nemeses = [
  ...['worker killed', 'worker paused', 'event loop blocked', 'client clock stepped'],
  ...['wire delayed', 'requests lost', 'replies lost', 'wire half-open', 'wire reset', 'connections refused'],
  ...['server paused', 'server restarted', 'server restarted empty', 'server clock stepped'],
  ...['CLIENT KILL', 'CLIENT PAUSE', 'SCRIPT FLUSH', 'FLUSHALL'],
];
/** docs/providers/redis.md, "What breaks it". */
export const allows = {
  'server restarted empty': ['overlap'],
  FLUSHALL: ['overlap'],
  'server clock stepped': ['overlap'],
};

export const startBackend = async () => (await import('./redis-backend.mjs')).startRedis();

export async function connect({ library, ports }) {
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const provider = new RedisLockProvider({ url: `redis://127.0.0.1:${ports[0]}`, commandTimeout: 500 });
  return managed({ library, provider, options: { lease: LEASE }, lifetime: LEASE });
}
