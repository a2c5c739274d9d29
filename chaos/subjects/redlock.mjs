import { load, managed } from './lock-manager.mjs';
import { CLIENT_FAULTS } from './client-faults.mjs';

const LEASE = 800;
const NODES = 5;

export const title = 'redlock, five nodes';
/** Processes retry after pauses of up to 250 ms. A vote whose connection broke ends with its lease. */
export const recovery = 2 * LEASE + 3_000;
export const lifetime = LEASE;
/** By the next renewal, which gets no majority, or at the deadline. */
export const noticedWithin = LEASE;
export const fair = false;
export const faults = [
  ...CLIENT_FAULTS,
  'connections dropped',
  ...[
    'server paused',
    'server paused in a handoff',
    'servers frozen at a deadline',
    'server restarted',
    'server restarted empty',
  ],
  ...['CLIENT KILL', 'CLIENT PAUSE', 'SCRIPT FLUSH', 'FLUSHALL'],
];
/** docs/providers/redlock.md: a node that loses its vote within a lease may vote for another holder. */
export const allows = { 'server restarted empty': ['overlap'], FLUSHALL: ['overlap'] };
export const excuse = 'A node lost its vote, and another majority formed. The holder notices at its next renewal';

export async function startBackend() {
  const { startRedisNode } = await import('./redis-node.mjs');
  const servers = await Promise.all(Array.from({ length: NODES }, () => startRedisNode()));
  return {
    servers,
    async remainingLocks() {
      const names = await Promise.all(servers.map(({ admin }) => admin.keys('lock:redlock:*')));
      return names.flat();
    },
    stop: () => Promise.all(servers.map((server) => server.stop())),
  };
}

export async function connect({ library, ports }) {
  const { RedlockLockProvider } = await load(library, 'providers/redlock/index.js');
  const nodes = ports.map((port) => ({ url: `redis://127.0.0.1:${port}` }));
  const provider = new RedlockLockProvider({ nodes, maxLease: LEASE });
  return managed({ library, provider, options: { lease: LEASE }, lifetime: LEASE });
}
