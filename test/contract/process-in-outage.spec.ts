import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { startMemcached } from '../servers/memcached-server.mjs';
import { startRedisServer } from '../servers/redis-server.mjs';
import { startMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { startZooKeeper } from '../servers/zookeeper-server.mjs';
import { until } from '../until.js';

interface Situation {
  readonly start: () => Promise<{ readonly port: number; stop(): Promise<void> }>;
  /** The provider's module and class. */
  readonly provider: readonly [file: string, name: string];
  readonly options: (port: number) => object;
  readonly campaign?: object;
}

const SHORT = { lease: 1_000 };
const SITUATIONS: Readonly<Record<string, Situation>> = {
  'Redis with ioredis': {
    start: startRedisServer,
    provider: ['providers/redis/index', 'RedisLockProvider'],
    options: (port) => ({ url: `redis://127.0.0.1:${port}` }),
    campaign: SHORT,
  },
  'version locks on Postgres': {
    start: startPostgres,
    provider: ['providers/sql/index', 'SqlVersionLockProvider'],
    options: (port) => ({ url: `postgres://postgres@127.0.0.1:${port}/postgres`, synchronize: true }),
    campaign: SHORT,
  },
  'row locks on MariaDB': {
    start: startMariaDb,
    provider: ['providers/sql/index', 'SqlRowLockProvider'],
    options: (port) => ({ url: `mariadb://root@127.0.0.1:${port}/test`, synchronize: true }),
  },
  'advisory locks on Postgres': {
    start: startPostgres,
    provider: ['providers/sql/index', 'SqlAdvisoryLockProvider'],
    options: (port) => ({ url: `postgres://postgres@127.0.0.1:${port}/postgres` }),
  },
  ZooKeeper: {
    start: startZooKeeper,
    provider: ['providers/zookeeper/index', 'ZooKeeperLockProvider'],
    options: (port) => ({ connectString: `127.0.0.1:${port}`, sessionTimeout: 2_000 }),
  },
  memcached: {
    start: startMemcached,
    provider: ['providers/memcached/index', 'MemcachedLockProvider'],
    options: (port) => ({ server: `127.0.0.1:${port}` }),
    campaign: SHORT,
  },
};

// During an outage, no socket keeps the process alive, and a supervisor doesn't restart a leader that exits with code
// 0.
describe('a leader in a process with nothing else to do', () => {
  let library: CompiledLibrary;
  let worker: ChildProcess | undefined;
  let wire: TcpProxy | undefined;
  let server: { readonly port: number; stop(): Promise<void> } | undefined;
  beforeAll(async () => {
    library = await compileLibrary();
  });
  afterEach(async () => {
    worker?.kill('SIGKILL');
    await wire?.close();
    await server?.stop();
  });
  afterAll(() => library.remove());

  it.each(Object.entries(SITUATIONS))(
    '%s: survives an outage, leads again, and exits on its own after the application closes',
    async (_, { start, provider, options, campaign = {} }) => {
      server = await start();
      const proxy = await startTcpProxy(server.port);
      wire = proxy;
      const settings = [JSON.stringify(options(proxy.port)), JSON.stringify(campaign)];
      const args = [join(import.meta.dirname, 'outage-worker.mjs'), library.folder, ...provider, ...settings];
      const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
      worker = child;
      let said = '';
      child.stdout.on('data', (chunk: Buffer) => (said += String(chunk)));
      const ended = once(child, 'exit');
      let exit: unknown;
      void ended.then(([code]: unknown[]) => {
        exit = code;
      });
      // On a busy machine, the worker may lose the lock more than once.
      const saysLast = (what: string) =>
        until(
          () => said.endsWith(what) || exit !== undefined,
          `the worker's last output is ${JSON.stringify(what)}`,
          undefined,
          () => said,
        );

      await saysLast('leads\n');
      proxy.refuse();
      await saysLast('leads\nresigned: lost\n');
      proxy.admit();
      await saysLast('resigned: lost\nleads\n');
      expect(exit).toBeUndefined();

      child.kill('SIGTERM');
      await ended;
      expect(exit).toBe(0);
      expect(said).toMatch(/^(leads\nresigned: lost\n)+leads\nresigned: shutdown\n$/);
    },
    60_000,
  );
});
