// The candidates. Each makes a function that acquires the lock `key` and resolves to a function that releases it.
import { builds, load } from '../builds.mjs';
import { ensurePeers } from '../peers/ensure-peers.mjs';
import { scripts } from './scripts.mjs';

const LEASE = 10_000;

/** What this library sends, without its code. It does not clean up where it loses, so it is for keys of its own. */
export const SCRIPTS = 'the same scripts, bare ioredis';

/** The candidate `name` on the servers at these ports. */
export async function candidate(name, ports) {
  if (name === SCRIPTS) return scripts(ports);
  return builds.includes(name) ? ours(ports, name) : (await peers())[name](ports);
}

/** The other libraries, by name. */
export async function peers() {
  return ensurePeers() ? (await import('./adapters.mjs')).peers : {};
}

async function ours(ports, build) {
  const { LockManager, RedlockProvider, namespace } = await load(build, 'redlock');
  const nodes = ports.map((port) => ({ url: `redis://127.0.0.1:${port}` }));
  const provider = new RedlockProvider({ nodes, maxLease: '30s' });
  const locks = new LockManager({ providers: { redlock: provider }, namespace });
  await locks.start();
  const acquire = async (key) => {
    const lock = await locks.acquire(key, { wait: '60s', lease: LEASE });
    return () => lock.release();
  };
  return { acquire };
}
