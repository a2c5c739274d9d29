import { Redis } from 'ioredis';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { capabilitiesOf } from '../backend-context.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { SmallProvider } from './small-provider.js';

let server: RedisServer;
let admin: Redis;
const wires = new Map<LockProvider, TcpProxy>();

beforeAll(async () => {
  server = await startRedisServer();
  admin = new Redis(server.url);
});
afterAll(async () => {
  await Promise.all([...wires.values()].map((wire) => wire.close()));
  admin.disconnect();
  await server.stop();
});

const nameOf = (namespace: string, key: string) => `${namespace}:${Buffer.from(key, 'utf16le').toString('base64url')}`;

describeLockProvider('the small provider of the documentation', {
  capabilities: capabilitiesOf(new SmallProvider({ url: 'redis://nowhere' })),
  create: async () => {
    const wire = await startTcpProxy(server.port);
    const provider = new SmallProvider({ url: `redis://127.0.0.1:${wire.port}` });
    wires.set(provider, wire);
    return provider;
  },
  faults: {
    revoke: (namespace, key) => admin.del(nameOf(namespace, key)),
    cutOff: async (provider) => wires.get(provider)?.refuse(),
    silence: async (provider) => wires.get(provider)?.freeze(),
    restore: async (provider) => wires.get(provider)?.heal(),
  },
  remainingLocks: async (namespace) => (await admin.keys(`${namespace}:*`)).length,
});
