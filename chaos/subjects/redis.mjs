import { load, managed } from './lock-manager.mjs';
import { CLIENT_FAULTS } from './client-faults.mjs';

const LEASE = 800;

export const title = 'redis';
/** A frozen receiver costs a provisional lease: 3 s, or the lease if that is shorter. Waiters retry every second. */
export const recovery = LEASE + 3_000 + 1_000;
/**
 * A queue lives for 10 s after a waiter's last command (docs/how-it-works/redis.md), and a dead process stays in it for
 * that time.
 */
export const cleanupWithin = 10_000 + 1_000;
export const lifetime = LEASE;
/** By the next renewal, or at the deadline if no renewal gets a response: docs/providers/redis.md. */
export const noticedWithin = LEASE;
export const fair = 'cohorts';
/**
 * A client's requests are queued when it has reconnected. After an outage of several seconds, it retries within 2 s.
 */
export const reconnect = 2_000;
export const faults = [
  ...CLIENT_FAULTS,
  'connections dropped',
  ...[
    'server paused',
    'server paused in a handoff',
    'servers frozen at a deadline',
    'server restarted',
    'server restarted empty',
    'server clock stepped',
  ],
  ...['CLIENT KILL', 'CLIENT PAUSE', 'SCRIPT FLUSH', 'FLUSHALL', 'notices forged'],
];
/** docs/providers/redis.md, "What it guarantees". */
export const allows = {
  'server restarted empty': ['overlap'],
  FLUSHALL: ['overlap'],
  'server clock stepped': ['overlap'],
};
export const excuse =
  'The server lost the lock, or a step of its clock expired the lease. The holder notices at its next renewal';

export const startBackend = async () => (await import('./redis-node.mjs')).startRedis();

export async function connect({ library, worker, ports }) {
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const provider = new RedisLockProvider({ url: `redis://127.0.0.1:${ports[0]}` });
  return managed({ library, provider, options: { lease: LEASE }, lifetime: LEASE, instance: worker });
}
