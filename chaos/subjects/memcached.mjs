import { load, managed } from './lock-manager.mjs';
import { CLIENT_FAULTS } from './client-faults.mjs';

const LEASE = 1_500;

export const title = 'memcached';
/** memcached counts in whole seconds, two of which aren't trusted, so an item may outlive its lease by three. */
export const recovery = LEASE + 3_000 + 2_000;
export const lifetime = LEASE;
export const fair = false;
/** By the next renewal. The default, the deadline, is later. */
export const noticedWithin = LEASE;
export const faults = [
  ...CLIENT_FAULTS,
  ...['server paused', 'server paused in a handoff', 'server restarted', 'FLUSHALL', 'locks evicted'],
];
/**
 * docs/providers/memcached.md: the server can lose locks, and there are no tokens, so nothing stops a holder that was
 * paused between check and write.
 */
export const allows = {
  ...Object.fromEntries(faults.map((name) => [name, ['stale']])),
  ...Object.fromEntries(['server restarted', 'FLUSHALL', 'locks evicted'].map((name) => [name, ['overlap', 'stale']])),
};
export const excuse = 'The server lost the lock, and no token lets the resource reject the earlier holder';

export async function startBackend() {
  const { startMemcached } = await import('../../test/servers/memcached-server.mjs');
  const server = await startMemcached();
  const remainingLocks = async () => (await server.keys()).filter((key) => key.startsWith('lock:'));
  const node = {
    port: server.port,
    signal: (name) => server.signal(name),
    crash: () => server.crash(),
    admin: { flushall: () => server.command('flush_all') },
    /** Has the effect of a full memory without filling it. */
    async evict() {
      for (const key of await remainingLocks()) await server.command(`delete ${key}`);
    },
    stored: async () => (await remainingLocks()).length,
  };
  return { servers: [node], remainingLocks, stop: () => server.stop() };
}

export async function connect({ library, ports }) {
  const { MemcachedLockProvider } = await load(library, 'providers/memcached/index.js');
  const provider = new MemcachedLockProvider({ server: `127.0.0.1:${ports[0]}`, commandTimeout: 500 });
  return managed({ library, provider, options: { lease: LEASE }, lifetime: LEASE });
}
