import { LockConfigError } from '../../lib/api/errors.js';
import { startRedlock } from '../redlock/quorum.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { startBackend } from './seam.js';

describe('a Redis that is older than 6.2', () => {
  let servers: readonly RedisServer[];
  let old: TcpProxy;
  const urls = () => [...servers.slice(0, 2).map(({ url }) => url), `redis://127.0.0.1:${old.port}`];

  beforeAll(async () => {
    servers = await Promise.all([startRedisServer(), startRedisServer(), startRedisServer()]);
    // Of the same length, which the answer tells.
    old = await startTcpProxy(servers[2]!.port, {
      rewrite: (text) => text.replace(/(redis_version:)\d\.\d/, '$16.0'),
    });
  });
  afterAll(async () => {
    await old.close();
    await Promise.all(servers.map((server) => server.stop()));
  });

  it('fails the boot', async () => {
    const starting = startBackend({ url: `redis://127.0.0.1:${old.port}` });
    await expect(starting).rejects.toBeInstanceOf(LockConfigError);
    await expect(starting).rejects.toThrow(/Redis 6\.0[.\d]* is too old for locks: it must be 6\.2 or later/);
  });

  it('fails the boot as a node of Redlock, by its number', async () => {
    const starting = startRedlock({ nodes: urls().map((url) => ({ url })) });
    await expect(starting).rejects.toBeInstanceOf(LockConfigError);
    await expect(starting).rejects.toThrow(/node 3 cannot be used: Redis 6\.0[.\d]* is too old/);
  });
});
