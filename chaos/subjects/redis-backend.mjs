import { Redis } from 'ioredis';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { startRedisServer } from '../../test/servers/redis-server.mjs';

/** One Redis server that keeps its data, and what an operator can do to it. */
export async function startRedisNode({ env } = {}) {
  const server = await startRedisServer({ args: ['--appendonly', 'yes', '--appendfsync', 'everysec'], env });
  const admin = new Redis(server.url, { retryStrategy: () => 50, maxRetriesPerRequest: null });
  admin.on('error', () => undefined);
  return {
    port: server.port,
    admin,
    signal: (name) => server.signal(name),
    crash: () => server.crash(),
    /** Ends the server, and takes away what it had written. */
    async loseData() {
      server.signal('SIGSTOP');
      await rm(join(server.folder, 'appendonlydir'), { recursive: true, force: true });
      await server.crash();
    },
    async connections() {
      return (await admin.client('LIST')).trim().split('\n').length;
    },
    stored: () => admin.dbsize(),
    async stop() {
      admin.disconnect();
      await server.stop();
    },
  };
}
