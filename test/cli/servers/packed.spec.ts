import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createConnection, type RowDataPacket } from 'mysql2/promise';
import pg from 'pg';
import { Redis } from 'ioredis';
import type { LockInfo } from '../../../lib/api/lock-info.js';
import type { LockProvider } from '../../../lib/api/lock-provider.js';
import { LockManager } from '../../../lib/core/lock-manager.js';
import { RedisLockProvider } from '../../../lib/providers/redis/index.js';
import { SqlVersionLockProvider } from '../../../lib/providers/sql/index.js';
import { ZooKeeperLockProvider } from '../../../lib/providers/zookeeper/index.js';
import { startRedisServer } from '../../servers/redis-server.mjs';
import { startMariaDb, startPostgres } from '../../servers/sql-server.mjs';
import { startZooKeeper } from '../../servers/zookeeper-server.mjs';
import { until } from '../../until.js';
import { PackedPackage, type Project } from './project.js';

const CLIENTS = ['ioredis', 'pg', 'mysql2'];
const TABLE = 'shop_lock';

/** A server with an application's locks. */
interface Subject {
  readonly url: string;
  /** The arguments that select the server and the application's namespace. */
  readonly args: readonly string[];
  readonly shop: LockManager;
  /** Everything on the server that can be counted. */
  count(): Promise<unknown>;
  stop(): Promise<unknown>;
}

async function shopOf(provider: LockProvider): Promise<LockManager> {
  const shop = new LockManager({ providers: { main: provider }, namespace: 'shop', instance: 'shop-7d9f:17' });
  await shop.start();
  return shop;
}

const SUBJECTS = {
  async redis(): Promise<Subject> {
    const server = await startRedisServer();
    const client = new Redis(server.url);
    return {
      ...{ url: server.url, args: ['--url', server.url, '--namespace', 'shop'] },
      shop: await shopOf(new RedisLockProvider({ url: server.url })),
      count: async () => (await client.keys('*')).sort(),
      stop: () => client.quit().then(() => server.stop()),
    };
  },
  async postgres(): Promise<Subject> {
    const server = await startPostgres();
    const client = new pg.Client(server.url);
    await client.connect();
    return {
      ...{ url: server.url, args: ['--url', server.url, '--namespace', 'shop', '--table', TABLE] },
      shop: await shopOf(new SqlVersionLockProvider({ url: server.url, table: TABLE, synchronize: true })),
      count: async () =>
        (await client.query(`SELECT name FROM ${TABLE} WHERE name NOT LIKE '%#purge' ORDER BY name`)).rows as unknown,
      stop: () => client.end().then(() => server.stop()),
    };
  },
  async mysql(): Promise<Subject> {
    const server = await startMariaDb();
    const client = await createConnection(server.url.replace('mariadb:', 'mysql:'));
    return {
      ...{ url: server.url, args: ['--url', server.url, '--namespace', 'shop', '--table', TABLE] },
      shop: await shopOf(new SqlVersionLockProvider({ url: server.url, table: TABLE, synchronize: true })),
      count: async () =>
        (
          await client.query<RowDataPacket[]>(`SELECT name FROM ${TABLE} WHERE name NOT LIKE '%#purge' ORDER BY name`)
        )[0],
      stop: () => client.end().then(() => server.stop()),
    };
  },
  async zookeeper(): Promise<Subject> {
    const server = await startZooKeeper();
    const url = `zookeeper://${server.connectString}`;
    return {
      ...{ url, args: ['--url', url, '--namespace', 'shop'] },
      shop: await shopOf(new ZooKeeperLockProvider({ connectString: server.connectString })),
      count: async () => Number(/zk_znode_count\t(\d+)/.exec(await server.ask('mntr'))?.[1]),
      stop: () => server.stop(),
    };
  },
};

let packed: PackedPackage;
let project: Project;
/** A project without client libraries. */
let bare: Project;

beforeAll(async () => {
  packed = await PackedPackage.pack();
  project = await packed.install('project', CLIENTS);
  bare = await packed.install('bare', []);
}, 240_000);
afterAll(() => packed.remove());

describe.each(Object.entries(SUBJECTS))('with %s', (kind, start) => {
  const knowsSince = kind !== 'zookeeper';
  // ZooKeeper locks last as long as the session.
  const long = kind === 'zookeeper' ? {} : { lease: '10m' as const };
  let subject: Subject;

  beforeAll(async () => {
    subject = await start();
  }, 60_000);
  afterAll(async () => {
    await subject.shop.stop();
    await subject.stop();
  });

  it('list, inspect, and free show the holder, and free changes nothing but the lock', async () => {
    const { shop, args, url } = subject;
    const lock = await shop.acquire('order:42', long);
    await shop.acquire('invoice:1', long);
    // The application records its name in the background.
    await until(
      async () => (await shop.admin.inspect('order:42'))?.instances[0] === 'shop-7d9f:17',
      'the name was recorded',
    );
    const before = await subject.count();

    const list = await project.run(['list', 'order:', ...args]);
    expect(list).toMatchObject({ status: 0, stderr: '' });
    const [header, row, end] = list.stdout.split('\n');
    expect(header).toMatch(/^KEY +STATE +HELD BY +SINCE +ENDS IN +WAITING +TOKEN$/);
    expect(row).toMatch(/^order:42 +held +shop-7d9f:17 /);
    expect(row).toMatch(knowsSince ? /\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ +10m / : / - +- /);
    expect(end).toBe('');

    // The environment can also provide the address.
    const json = await project.run(['list', '--json', ...args.slice(2)], { env: { LOCK_URL: url } });
    expect(json).toMatchObject({ status: 0, stderr: '' });
    const locks = (JSON.parse(json.stdout) as LockInfo[]).sort((one, other) => (one.key < other.key ? 1 : -1));
    expect(locks.map(({ key }) => key)).toEqual(['order:42', 'invoice:1']);
    expect(locks[0]).toMatchObject({ instances: ['shop-7d9f:17'], fencingToken: String(lock.fencingToken) });

    const inspect = await project.run(['inspect', 'order:42', ...args]);
    expect(inspect).toMatchObject({ status: 0, stderr: '' });
    expect(inspect.stdout).toMatch(/^held by +shop-7d9f:17$/m);
    expect(inspect.stdout).toMatch(knowsSince ? /^since +\d{4}-.*ago\)$/m : /^since +unknown$/m);
    const { stdout } = await project.run(['inspect', 'order:42', ...args, '--json']);
    const info = JSON.parse(stdout) as LockInfo;
    expect({ ...info, expiresIn: 0 }).toEqual({ ...locks[0], expiresIn: 0 });

    const unasked = await project.run(['free', 'order:42', ...args]);
    expect(unasked).toMatchObject({ status: 2, stdout: '' });
    expect(unasked.stderr).toContain('Use --yes.');
    expect(remaining(before, await subject.count())).toEqual(before);

    const free = await project.run(['free', 'order:42', ...args, '--yes']);
    expect(free).toMatchObject({ status: 0, stderr: '' });
    expect(free.stdout).toMatch(/^held by +shop-7d9f:17$/m);
    expect(free.stdout).toMatch(/^"order:42" was freed\.$/m);
    expect(await shop.isLocked('order:42')).toBe(false);
    const again = await project.run(['free', 'order:42', ...args, '--yes', '--json']);
    expect(again).toMatchObject({ status: 1, stdout: '{"key":"order:42","freed":false,"was":null}\n' });
    expect(await project.run(['inspect', 'order:42', ...args])).toMatchObject({
      ...{ status: 1, stdout: '"order:42" is free in the namespace "shop".\n' },
    });
  }, 120_000);

  it('leaves nothing in a namespace that no application uses', async () => {
    const args = subject.args.map((arg) => (arg === 'shop' ? 'nobody' : arg));
    const before = await subject.count();
    expect(await project.run(['list', ...args])).toMatchObject({ status: 0, stdout: '' });
    expect(await project.run(['list', ...args, '--json'])).toMatchObject({ status: 0, stdout: '[]\n' });
    expect((await project.run(['inspect', 'a', ...args])).status).toBe(1);
    expect((await project.run(['free', 'a', ...args, '--yes'])).status).toBe(1);
    const doctor = await project.run(['doctor', ...args, '--json']);
    expect([0, 1]).toContain(doctor.status);
    expect(await project.run(['jobs', ...args, '--json'])).toMatchObject({ status: 0, stdout: '[]\n' });
    expect(JSON.parse(doctor.stdout)).toMatchObject({ namespace: 'nobody', findings: expect.any(Array) as unknown });
    expect(remaining(before, await subject.count())).toEqual(before);
  }, 120_000);
});

/** Returns what is left. ZooKeeper deletes empty containers of earlier tests once a minute. */
function remaining(before: unknown, after: unknown): unknown {
  return typeof before === 'number' && typeof after === 'number' ? Math.max(before, after) : after;
}

describe('mistakes and outages', () => {
  let redis: Awaited<ReturnType<typeof startRedisServer>>;
  let url: string;

  beforeAll(async () => {
    redis = await startRedisServer({ args: ['--requirepass', 'hunter2'] });
    url = redis.url.replace('://', '://:hunter2@');
  }, 60_000);
  afterAll(() => redis.stop());

  it('warns about a password in an argument, and prints it nowhere', async () => {
    const shown = await project.run(['list', '--url', url]);
    expect(shown.status).toBe(0);
    expect(shown.stderr).toMatch(/^warning: Other users .* LOCK_URL instead\.$/m);
    expect((await project.run(['list'], { env: { LOCK_URL: url } })).stderr).not.toContain('warning');
    const wrong = await project.run(['list', '--url', url.replace('hunter2', 'hunter3')]);
    expect(wrong.status).toBe(2);
    const down = await project.run(['list', '--url', 'redis://:hunter2@127.0.0.1:1']);
    expect(down).toMatchObject({ status: 3, stdout: '' });
    const misspelled = await project.run(['list', url, '--url', url.replace('redis:', 'rdis:')]);
    expect(misspelled.status).toBe(2);
    expect(JSON.stringify([shown, wrong, down, misspelled])).not.toMatch(/hunter\d/);
  }, 120_000);

  it('doctor reports problems and their fixes, even if the table is missing', async () => {
    const doctor = await project.run(['doctor'], { env: { LOCK_URL: url } });
    expect(doctor).toMatchObject({ status: 1, stderr: '' });
    expect(doctor.stdout).toMatch(/^warning: .*AOF disabled.* Set appendonly yes\.$/m);
    const postgres = await startPostgres();
    const missing = await project.run(['doctor', '--url', postgres.url]);
    expect(missing).toMatchObject({ status: 1, stderr: '' });
    expect(missing.stdout).toMatch(/^error: .*lock table does not exist.*migration/m);
    expect(await project.run(['list', '--url', postgres.url])).toMatchObject({ status: 2, stdout: '' });
    await postgres.stop();
  }, 120_000);

  it('uses the client library of the working directory, and names it if it is missing', async () => {
    const env = { LOCK_URL: url };
    const missing = await bare.run(['list'], { env });
    expect(missing).toMatchObject({ status: 2, stdout: '' });
    expect(missing.stderr).toMatch(/npm install ioredis/);
    expect(await bare.run(['list'], { env, cwd: project.folder })).toMatchObject({ status: 0, stdout: '' });
  }, 120_000);

  it('reads the provider and the namespace from a file, and explains a provider without a list', async () => {
    const write = (name: string, text: string) => writeFile(join(project.folder, name), text);
    await write(
      'lock.config.mjs',
      `import { RedisLockProvider } from 'nestjs-distributed-lock/redis';
       export default new RedisLockProvider({ url: process.env.SECRET_URL });
       export const namespace = 'shop';`,
    );
    const shop = await shopOf(new RedisLockProvider({ url }));
    await shop.acquire('order:42', { lease: '10m' });
    const list = await project.run(['list', '--config', 'lock.config.mjs'], { env: { SECRET_URL: url } });
    expect(list).toMatchObject({ status: 0, stderr: '' });
    expect(list.stdout).toMatch(/^order:42 +held +shop-7d9f:17 /m);
    await shop.stop();

    const postgres = await startPostgres();
    await write(
      'row.config.mjs',
      `import { SqlRowLockProvider } from 'nestjs-distributed-lock/sql';
       export default new SqlRowLockProvider({ url: '${postgres.url}', synchronize: true });`,
    );
    for (const command of [['list'], ['inspect', 'a'], ['free', 'a', '--yes']]) {
      const row = await project.run([...command, '--config', 'row.config.mjs']);
      expect(row).toMatchObject({ status: 2, stdout: '' });
      expect(row.stderr).toMatch(/^error: .* cannot .* belong to database sessions, /);
    }
    await postgres.stop();

    await write('none.config.mjs', 'export const provider = 1;');
    const none = await project.run(['list', '--config', 'none.config.mjs']);
    expect(none).toMatchObject({ status: 2, stdout: '' });
    expect(none.stderr).toContain('default export of none.config.mjs is undefined, but must be a lock provider');
    expect((await project.run(['list', '--config', 'missing.mjs'])).stderr).toContain(
      'Could not load the --config file',
    );
  }, 120_000);

  it('prints mistakes on one line with a hint to --help, and supports --help and --version', async () => {
    const nothing = await project.run([]);
    expect(nothing).toMatchObject({ status: 2, stdout: '' });
    expect(nothing.stderr).toMatch(/^error: The command is missing\. .*\nHelp: npx nestjs-distributed-lock --help\n$/);
    expect((await project.run(['lsit'])).stderr).toMatch(
      /^error: Unknown command "lsit"\. Use one of list, inspect, jobs, free, doctor, sql\.\nHelp: .*\n$/,
    );
    for (const command of ['list', 'inspect', 'jobs', 'free', 'doctor', 'sql']) {
      const help = await project.run([command, '--help']);
      expect(help).toMatchObject({ status: 0, stderr: '' });
      expect(help.stdout).toMatch(`usage: npx nestjs-distributed-lock ${command}`);
    }
    expect((await project.run(['list'])).stderr).toMatch(
      /^error: No server specified.*\nHelp: npx nestjs-distributed-lock list --help\n$/,
    );
    const { version } = JSON.parse(await readFile('package.json', 'utf8')) as { version: string };
    expect(await project.run(['--version'])).toEqual({ status: 0, stdout: `${version}\n`, stderr: '' });
    expect((await project.run(['sql', '--database', 'postgres'])).stdout).toContain('CREATE TABLE');
  }, 120_000);
});
