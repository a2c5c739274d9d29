import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { MemcachedLockProvider } from '../../lib/providers/memcached/index.js';
import { itemKeyOf } from '../../lib/providers/memcached/lock-item.js';
import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { capabilitiesOf } from '../backend-context.js';
import { type MemcachedServer, startMemcached } from '../servers/memcached-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';

let server: MemcachedServer;
// Requires a login that the provider doesn't have. A memcached server can refuse only the connection.
let closed: MemcachedServer;
let folder: string;
// Each provider has its own proxy, which can be cut.
const wires = new Map<LockProvider, TcpProxy>();

beforeAll(async () => {
  server = await startMemcached();
  folder = await mkdtemp(join(tmpdir(), 'lock-memcached-'));
  await writeFile(join(folder, 'accounts'), 'kit:secret\n');
  closed = await startMemcached({ args: ['-Y', join(folder, 'accounts')] });
});
afterAll(async () => {
  await Promise.all([...wires.values()].map((wire) => wire.close()));
  await Promise.all([server.stop(), closed.stop()]);
  await rm(folder, { recursive: true });
});

describeLockProvider('memcached', {
  capabilities: capabilitiesOf(new MemcachedLockProvider({ server: 'nowhere' })),
  create: async () => {
    const wire = await startTcpProxy(server.port);
    const provider = new MemcachedLockProvider({ server: `127.0.0.1:${wire.port}`, commandTimeout: '10s' });
    wires.set(provider, wire);
    return provider;
  },
  // memcached counts whole seconds, and two of them aren't trusted, so a key may outlive its lease by up to three
  // seconds.
  bounds: { expiry: 3_000, takeOver: 4_500, deadWaiter: 9_000 },
  faults: {
    revoke: (namespace, key) => server.command(`delete ${itemKeyOf(namespace, key)}`),
    cutOff: async (provider) => wires.get(provider)?.refuse(),
    silence: async (provider) => wires.get(provider)?.freeze(),
    refuse: async (provider) => {
      wires.get(provider)?.leadTo(closed.port);
      wires.get(provider)?.cut();
    },
    restore: async (provider) => {
      wires.get(provider)?.leadTo(server.port);
      wires.get(provider)?.heal();
    },
  },
  remainingLocks: async (namespace) => (await server.keys()).filter((key) => key.startsWith(`${namespace}:`)).length,
});
