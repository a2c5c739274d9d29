// The candidates. Each makes a function that acquires the lock `key` and resolves to a function that releases it.
import { LockManager } from 'nestjs-distributed-lock';
import { RedlockProvider } from 'nestjs-distributed-lock/redlock';
import { ensurePeers } from '../peers/ensure-peers.mjs';

const LEASE = 10_000;
export const OURS = 'nestjs-distributed-lock';

const makers = { [OURS]: ours, ...(ensurePeers() && (await import('./adapters.mjs')).peers) };

export const names = Object.keys(makers);

export function candidate(name, ports) {
  return makers[name](ports);
}

async function ours(ports) {
  const nodes = ports.map((port) => ({ url: `redis://127.0.0.1:${port}` }));
  const locks = new LockManager({ providers: { redlock: new RedlockProvider({ nodes, maxLease: '30s' }) } });
  await locks.start();
  const acquire = async (key) => {
    const lock = await locks.acquire(key, { wait: '60s', lease: LEASE });
    return () => lock.release();
  };
  return { acquire, stop: () => locks.stop() };
}
