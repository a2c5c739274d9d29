// The candidates. Each makes a function that acquires the lock `key` and resolves to a function that releases it.
import { builds, load } from '../builds.mjs';
import { ensurePeers } from '../peers/ensure-peers.mjs';
import { scripts } from './scripts.mjs';

const LEASE = 10_000;

const own = Object.fromEntries(builds.map((build) => [build, (ports) => ours(ports, build)]));
/** What this library sends, without its code. It does not clean up where it loses, so it is for keys of its own. */
export const SCRIPTS = 'the same scripts, bare ioredis';

const makers = { ...own, ...(ensurePeers() && (await import('./adapters.mjs')).peers) };

export const names = Object.keys(makers);

export function candidate(name, ports) {
  return name === SCRIPTS ? scripts(ports) : makers[name](ports);
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
