// The candidates. Each creates a function that acquires the lock `key` and resolves to a function that releases it.
import { builds, load, OURS } from '../builds.mjs';
import { ensurePeers } from '../peers/ensure-peers.mjs';
import { scripts } from './scripts.mjs';

const LEASE = 10_000;

/**
 * What this library sends, without its code. It doesn't clean up after losing a vote, so each caller must use its own
 * keys.
 */
export const SCRIPTS = 'the same scripts, bare ioredis';

/** This library without servers: what an uncontended acquire costs before anything is sent. */
export const IN_MEMORY = 'this library, in memory';

/** The candidate `name` on the servers at these ports. */
export async function candidate(name, ports) {
  if (name === SCRIPTS) return scripts(ports);
  if (name === IN_MEMORY) return inMemory();
  return builds.includes(name) ? ours(ports, name) : (await peers())[name](ports);
}

/** The other libraries, by name. */
export async function peers() {
  return ensurePeers() ? (await import('./adapters.mjs')).peers : {};
}

async function ours(ports, build) {
  const { RedlockLockProvider } = await load(build, 'redlock');
  const nodes = ports.map((port) => ({ url: `redis://127.0.0.1:${port}` }));
  return byManager(build, new RedlockLockProvider({ nodes, maxLease: '30s' }));
}

async function inMemory() {
  const { MemoryLockProvider } = await load(OURS);
  return byManager(OURS, new MemoryLockProvider());
}

async function byManager(build, provider) {
  const { LockManager, namespace } = await load(build);
  const locks = new LockManager({ providers: { measured: provider }, namespace });
  await locks.start();
  const acquire = async (key) => {
    const lock = await locks.acquire(key, { wait: '60s', lease: LEASE });
    return () => lock.release();
  };
  return { acquire };
}
