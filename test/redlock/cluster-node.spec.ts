import { afterAll, beforeAll } from '@jest/globals';
import { LockConfigError } from '../../lib/api/errors.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startRedlock } from './quorum.js';

describe('a node of a Redis Cluster among the nodes', () => {
  let servers: readonly RedisServer[];
  beforeAll(async () => {
    const clustered = startRedisServer({ args: ['--cluster-enabled', 'yes'] });
    servers = await Promise.all([startRedisServer(), startRedisServer(), clustered]);
  });
  afterAll(() => Promise.all(servers.map((server) => server.stop())));

  it('is refused at start, by its number', async () => {
    const starting = startRedlock({ nodes: servers.map(({ url }) => ({ url })) });
    await expect(starting).rejects.toBeInstanceOf(LockConfigError);
    await expect(starting).rejects.toThrow('node 3 belongs to a Redis Cluster');
  });
});
