// Control: the limit that many applications write themselves. The judge must find it guilty.
import { setTimeout as sleep } from 'node:timers/promises';
import * as naive from './naive.mjs';

export const title = 'control: INCR and DECR, hand-written';
/** The counter expires while others hold the lock, and a late holder then decrements it one more time. */
export const control = ['limit'];
export const { recovery, fair, faults, allows, lifetime, startBackend } = naive;

export async function connect({ ports }) {
  const { Redis } = await import('ioredis');
  const redis = new Redis(ports[0], '127.0.0.1');
  redis.on('error', () => undefined);
  return {
    lifetime,
    wait: 5_000,
    shared: false,
    limited: { keys: ['a', 'b', 'c'], share: 1 },
    isDocumentedError: () => true,
    async acquire(key, { limit, weight, wait }) {
      const counter = `naive:${key}`;
      for (const until = performance.now() + wait; ; await sleep(10)) {
        const taken = await redis.incrby(counter, weight);
        // Otherwise, the holders in a dead process would count forever.
        if (taken === weight) await redis.pexpire(counter, lifetime);
        if (taken <= limit) return naive.neverChecks(() => redis.decrby(counter, weight));
        await redis.decrby(counter, weight);
        if (performance.now() >= until) throw new Error('busy');
      }
    },
    stop: async () => redis.disconnect(),
  };
}
