import type { LockProvider } from '../../lib/api/lock-provider.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { contextFor } from '../redis/seam.js';
import { type Quorum, startQuorum, wiresTo } from '../redlock/quorum.js';
import type { TcpProxy } from '../servers/tcp-proxy.js';

let quorum: Quorum;
// Each provider has its own proxies, which can be cut.
const wires = new Map<LockProvider, readonly TcpProxy[]>();

beforeAll(async () => {
  quorum = await startQuorum(5);
});
afterAll(async () => {
  await Promise.all([...wires.values()].flat().map((wire) => wire.close()));
  await quorum.stop();
});

// Each provider has its own user on each node, whose permissions can be revoked.
const users = new Map<LockProvider, string>();
const allow = (provider: LockProvider, ...rules: string[]) =>
  Promise.all(quorum.admins.map((admin) => admin.call('ACL', 'SETUSER', users.get(provider) ?? '', ...rules)));

const capabilities = new RedlockLockProvider({
  nodes: [{ url: 'redis://a' }, { url: 'redis://b' }, { url: 'redis://c' }],
  maxLease: '1m',
}).createBackend(contextFor([])).capabilities;

describeLockProvider('redlock, five nodes', {
  capabilities,
  create: async () => {
    const { wires: own } = await wiresTo(quorum);
    const user = `kit-${own[0]?.port ?? 0}`;
    for (const admin of quorum.admins) {
      await admin.call('ACL', 'SETUSER', user, 'on', '>secret', '~*', '&*', '+@all');
    }
    const nodes = own.map(({ port }) => ({ url: `redis://${user}:secret@127.0.0.1:${port}` }));
    const provider = new RedlockLockProvider({ nodes, maxLease: '1m', commandTimeout: '10s' });
    wires.set(provider, own);
    users.set(provider, user);
    return provider;
  },
  // A node may take up to a tenth of the lease to respond. A shorter lease would test the busy machine instead.
  lease: 4_000,
  concurrency: 4,
  faults: {
    revoke: (namespace, key) =>
      Promise.all(quorum.admins.map((admin) => admin.del(new RedlockKeyLayout(namespace).lockOf(key)))),
    cutOff: async (provider) => {
      for (const wire of wires.get(provider) ?? []) wire.refuse();
    },
    silence: async (provider) => {
      for (const wire of wires.get(provider) ?? []) wire.freeze();
    },
    refuse: (provider) => allow(provider, '-eval', '-evalsha'),
    restore: async (provider) => {
      await allow(provider, '+@all');
      for (const wire of wires.get(provider) ?? []) wire.heal();
    },
  },
  remainingLocks: async (namespace) => {
    // Counters are permanent.
    const keys = await Promise.all(quorum.admins.map((admin) => admin.keys(`${namespace}:redlock:*`)));
    return keys.flat().length;
  },
});
