import { Redis } from 'ioredis';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { IOREDIS, NODE_REDIS } from '../redis/client-libraries.js';
import { backendOf } from '../redis/seam.js';
import { externalServer, wireTo } from '../servers/external-server.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import type { TcpProxy } from '../servers/tcp-proxy.js';

let server: RedisServer;
let admin: Redis;
// Each provider's backend has its own proxy, which can be cut.
const wires = new Map<LockProvider, TcpProxy>();
// Each provider has its own user, whose permissions can be revoked.
const users = new Map<LockProvider, string>();

beforeAll(async () => {
  const external = externalServer('LOCK_TEST_REDIS_URL');
  server = external ?? (await startRedisServer());
  admin = new Redis(server.url);
  if (external) console.log(`on ${(await admin.info('server')).match(/^(?:redis|valkey)_version:.*$/gm)?.join(', ')}`);
});
afterAll(async () => {
  await Promise.all([...wires.values()].map((wire) => wire.close()));
  admin.disconnect();
  await server.stop();
});

for (const library of [IOREDIS, NODE_REDIS])
  describeLockProvider(`redis, with ${String(library)}`, {
    capabilities: backendOf({ url: 'redis://nowhere' }).capabilities,
    create: async () => {
      const { wire, url } = await wireTo(server.url);
      const account = new URL(url);
      account.username = `kit-${wire.port}`;
      account.password = 'secret';
      await admin.call('ACL', 'SETUSER', account.username, 'on', '>secret', '~*', '&*', '+@all');
      const provider = new RedisLockProvider({ ...library.server(account.toString()), commandTimeout: '10s' });
      wires.set(provider, wire);
      users.set(provider, account.username);
      return provider;
    },
    faults: {
      revoke: async (namespace, key) => {
        await admin.del(new KeyLayout(namespace).lockOf(key));
      },
      cutOff: async (provider) => wires.get(provider)?.refuse(),
      silence: async (provider) => wires.get(provider)?.freeze(),
      refuse: (provider) => admin.call('ACL', 'SETUSER', users.get(provider) ?? '', '-eval', '-evalsha'),
      restore: async (provider) => {
        await admin.call('ACL', 'SETUSER', users.get(provider) ?? '', '+@all');
        wires.get(provider)?.heal();
      },
    },
    records: true,
    remainingLocks: async (namespace) => {
      const keys = await admin.keys(`${namespace}:*`);
      // Counters are permanent, and instance names are kept for a day. Last-seen times expire after 10 s.
      return keys.filter((key) => !/:\{\d+\}(seen|instance:[0-9a-f]{12})?$/.test(key)).length;
    },
  });
