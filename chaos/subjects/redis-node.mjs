import { Redis } from 'ioredis';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { makeServerClock } from '../../test/servers/server-clock.ts';

/** Starts one Redis server that persists its data. The result has the actions of an operator. */
export async function startRedisNode({ env } = {}) {
  const server = await startRedisServer({ args: ['--appendonly', 'yes', '--appendfsync', 'everysec'], env });
  const admin = new Redis(server.url, { retryStrategy: () => 50, maxRetriesPerRequest: null });
  admin.on('error', () => undefined);
  return {
    port: server.port,
    admin,
    signal: (name) => server.signal(name),
    crash: (options) => server.crash(options),
    /** Kills the server, deletes its data, and starts it again. */
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

/** Starts one Redis server. Its clock can be stepped if a C compiler is installed. */
export async function startRedis() {
  const clock = makeServerClock();
  const node = await startRedisNode({ env: clock?.env });
  return {
    servers: [{ ...node, clock }],
    remainingLocks: () => lockKeys(node.admin),
    async stop() {
      await node.stop();
      clock?.remove();
    },
  };
}

/**
 * The keys of held locks and of queues. Counters are permanent, and the time at which a process was last seen stays for
 * 10 s.
 */
export async function lockKeys(...admins) {
  const names = await Promise.all(admins.map((admin) => admin.keys('lock:*')));
  return names.flat().filter((name) => /^lock:\{\d+\}:[^}]*$|\}q$/.test(name));
}
