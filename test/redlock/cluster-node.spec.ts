import { LockConfigError } from '../../lib/api/errors.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startRedlock } from './quorum.js';
import { freePort } from '../servers/server-process.mjs';

describe('a node of a Redis Cluster among the nodes', () => {
  let servers: readonly RedisServer[];
  beforeAll(async () => {
    // By default its bus is 10 000 ports higher, among those of outgoing connections.
    const bus = String(await freePort());
    const clustered = startRedisServer({ args: ['--cluster-enabled', 'yes', '--cluster-port', bus] });
    servers = await Promise.all([startRedisServer(), startRedisServer(), clustered]);
  });
  afterAll(() => Promise.all(servers.map((server) => server.stop())));

  it('is refused at start, by its number', async () => {
    const starting = startRedlock({ nodes: servers.map(({ url }) => ({ url })) });
    await expect(starting).rejects.toBeInstanceOf(LockConfigError);
    await expect(starting).rejects.toThrow('node 3 belongs to a Redis Cluster');
  });
});
