import { type ChildProcess, fork, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';

type Generation = 'old' | 'both' | 'new';

const TURNS = 50;
const WORKER = fileURLToPath(new URL('migration-worker.mjs', import.meta.url));
const ENSURE_PEERS = new URL('../../bench/peers/ensure-peers.mjs', import.meta.url);

/** The promises of the pages in docs/migrate. */
describe.each(['murlock', 'nestjs-redlock-universal', 'redlock 5 beta', 'redis-semaphore'])(
  'migration from %s',
  (rival) => {
    let library: CompiledLibrary;
    let server: RedisServer;
    let redis: Redis;
    const instances: ChildProcess[] = [];

    beforeAll(async () => {
      const program = `const { ensurePeers } = await import('${ENSURE_PEERS.href}'); ensurePeers();`;
      expect(spawnSync(process.execPath, ['--input-type=module', '-e', program], { stdio: 'inherit' }).status).toBe(0);
      library = await compileLibrary();
    }, 600_000);
    afterAll(() => library.remove());
    beforeEach(async () => {
      server = await startRedisServer();
      redis = new Redis(server.url);
    });
    afterEach(async () => {
      for (const instance of instances.splice(0)) instance.kill('SIGKILL');
      redis.disconnect();
      await server.stop();
    });

    const count = async (name: string) => Number(await redis.get(name));
    const start = async (generation: Generation) => {
      const instance = fork(WORKER, [library.folder, server.url, rival, generation], { execArgv: [] });
      instances.push(instance);
      await once(instance, 'message');
    };
    /** Waits until each generation has been inside often enough. Fails if an instance exits early. */
    const turns = async (...generations: Generation[]) => {
      const served = () => Promise.all(generations.map((each) => count(`visits:${each}`)));
      while ((await served()).some((visits) => visits < TURNS)) {
        expect(instances.filter(({ exitCode }) => exitCode !== null)).toEqual([]);
        await sleep(20);
      }
    };

    it('the first deployment excludes instances with the old lock and with both', async () => {
      await Promise.all([start('old'), start('both')]);
      await turns('old', 'both');
      expect(await count('collisions')).toBe(0);
    }, 120_000);

    it('the second deployment excludes instances with both locks and with the new one', async () => {
      await Promise.all([start('both'), start('new')]);
      await turns('both', 'new');
      expect(await count('collisions')).toBe(0);
    }, 120_000);

    it('a single deployment does not exclude instances with the old lock and with the new one', async () => {
      await Promise.all([start('old'), start('new')]);
      await turns('old', 'new');
      expect(await count('collisions')).toBeGreaterThan(0);
    }, 120_000);
  },
);
