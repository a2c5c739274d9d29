import { load, managed } from './lock-manager.mjs';

const LEASE = 1_500;

export const title = 'memcached';
/** Whole seconds of which two are not trusted: an item may outlive its lease by three. */
export const recovery = LEASE + 3_000 + 2_000;
export const lifetime = LEASE;
export const fair = false;
/** By the next renewal; by default at the deadline, which is later. */
export const toldWithin = LEASE;
export const nemeses = [
  ...['worker killed', 'worker paused', 'event loop blocked', 'client clock stepped'],
  ...['wire delayed', 'requests lost', 'replies lost', 'wire half-open', 'wire reset', 'connections refused'],
  ...['server paused', 'server restarted', 'FLUSHALL', 'locks evicted'],
];
/** docs/providers/memcached.md: it forgets, and it has no tokens, so nothing stops a holder that was paused between check and write. */
export const allows = {
  ...Object.fromEntries(nemeses.map((name) => [name, ['stale']])),
  ...Object.fromEntries(['server restarted', 'FLUSHALL', 'locks evicted'].map((name) => [name, ['overlap', 'stale']])),
};

export async function startBackend() {
  const { startMemcached } = await import('../../test/servers/memcached-server.mjs');
  const server = await startMemcached();
  const leftovers = async () => (await server.keys()).filter((key) => key.startsWith('lock:'));
  const node = {
    port: server.port,
    signal: (name) => server.signal(name),
    crash: () => server.crash(),
    admin: { flushall: () => server.command('flush_all') },
    /** The effect of a full memory, without the garbage that fills it. */
    async evict() {
      for (const key of await leftovers()) await server.command(`delete ${key}`);
    },
    stored: async () => (await leftovers()).length,
  };
  return { servers: [node], leftovers, stop: () => server.stop() };
}

export async function connect({ library, ports }) {
  const { MemcachedLockProvider } = await load(library, 'providers/memcached/index.js');
  const provider = new MemcachedLockProvider({ server: `127.0.0.1:${ports[0]}`, commandTimeout: 500 });
  return managed({ library, provider, options: { lease: LEASE }, lifetime: LEASE });
}
