import { Redis } from 'ioredis';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { makeServerClock } from '../../test/servers/server-clock.ts';

/** One Redis server that keeps its data, and what an operator can do to it. */
export async function startRedisNode({ env } = {}) {
  const server = await startRedisServer({ args: ['--appendonly', 'yes', '--appendfsync', 'everysec'], env });
  const admin = new Redis(server.url, { retryStrategy: () => 50, maxRetriesPerRequest: null });
  admin.on('error', () => undefined);
  return {
    port: server.port,
    admin,
    signal: (name) => server.signal(name),
    crash: (options) => server.crash(options),
    /** Ends the server, and deletes its data. */
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

/** One Redis server with a clock that can be stepped, where there is a compiler for it; and the locks that it keeps. */
export async function startRedis() {
  const clock = makeServerClock();
  const node = await startRedisNode({ env: clock?.env });
  return {
    servers: [{ ...node, clock }],
    leftovers: () => keysOfLocks(node.admin),
    async stop() {
      await node.stop();
      clock?.remove();
    },
  };
}

/** Keys of locks that are held or queued for. The counter is permanent, and when a process was last seen stays for 10 s. */
async function keysOfLocks(admin) {
  const names = await admin.keys('lock:*');
  return names.filter((name) => /^lock:\{\d+\}:[^}]*$|\}q$/.test(name));
}
