// Control: the lock that many applications write themselves. The judge must find it guilty.
import { setTimeout as sleep } from 'node:timers/promises';

const LEASE = 300;

export const title = 'control: SET NX PX, hand-written';
/** A paused holder loses its lock without noticing, and writes anyway. */
export const control = ['overlap', 'stale'];
export const recovery = LEASE + 5_000;
export const fair = false;
export const faults = ['worker paused', 'event loop blocked', 'worker killed', 'server paused in a handoff'];
export const allows = {};
export const lifetime = LEASE;

export async function startBackend() {
  const { startRedisNode } = await import('./redis-node.mjs');
  const node = await startRedisNode();
  return { servers: [node], remainingLocks: () => [], stop: () => node.stop() };
}

export async function connect({ ports }) {
  const { Redis } = await import('ioredis');
  const redis = new Redis(ports[0], '127.0.0.1');
  redis.on('error', () => undefined);
  return {
    lifetime: LEASE,
    wait: 5_000,
    shared: false,
    isDocumentedError: () => true,
    async acquire(key, { wait }) {
      const value = String(process.pid);
      for (const until = performance.now() + wait; ; await sleep(10)) {
        if ((await redis.set(`naive:${key}`, value, 'PX', LEASE, 'NX')) === 'OK') {
          // Not atomic: the key may expire between these two steps.
          return neverChecks(async () => {
            if ((await redis.get(`naive:${key}`)) === value) await redis.del(`naive:${key}`);
          });
        }
        if (performance.now() >= until) throw new Error('busy');
      }
    },
    stop: async () => redis.disconnect(),
  };
}

/** A holder that never checks whether it still holds the lock. */
export function neverChecks(release) {
  const end = performance.now() + LEASE;
  return {
    tokenOf: () => null,
    claim: () => ({ held: true, remaining: LEASE, overdue: Math.round(performance.now() - end) }),
    async release() {
      await release();
      return 'released';
    },
  };
}
