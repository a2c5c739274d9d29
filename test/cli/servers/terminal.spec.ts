import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { LockManager } from '../../../lib/core/lock-manager.js';
import { RedisLockProvider } from '../../../lib/providers/redis/index.js';
import { type RedisServer, startRedisServer } from '../../servers/redis-server.mjs';
import { PackedPackage, type Project } from './project.js';

const BOLD = '\u001b[1m';
const CTRL_C = '\u0003';
const CTRL_D = '\u0004';

let packed: PackedPackage;
let project: Project;
let server: RedisServer;
let shop: LockManager;
let redis: readonly string[];

beforeAll(async () => {
  packed = await PackedPackage.pack();
  project = await packed.install('project', ['ioredis']);
  server = await startRedisServer();
  redis = ['--url', server.url];
  shop = new LockManager({ providers: { main: new RedisLockProvider({ url: server.url }) }, instance: 'shop-1' });
  await shop.start();
}, 240_000);

afterAll(async () => {
  await shop.stop();
  await Promise.all([server.stop(), packed.remove()]);
});

describe('free', () => {
  it('shows the holder, asks for confirmation, and frees only on yes', async () => {
    await shop.acquire('order:42', { lease: '10m' });
    for (const no of ['n\r', '\r', 'yess\r', CTRL_C, CTRL_D]) {
      const asked = project.startInTerminal(['free', 'order:42', ...redis]);
      await asked.writes(/\[y\/N\]/);
      expect(asked.stdout).toMatch(/held by +shop-1\r\nsince +\d{4}-.*\r\n[^]*Free "order:42"\?/);
      asked.type(no);
      const { status, stdout } = await asked.ended;
      expect({ no, status }).toEqual({ no, status: 1 });
      expect(stdout).toContain('Nothing was freed.');
      expect(await shop.isLocked('order:42')).toBe(true);
    }
    const asked = project.startInTerminal(['free', 'order:42', ...redis]);
    await asked.writes(/\[y\/N\]/);
    asked.type('y\r');
    const { status, stdout } = await asked.ended;
    expect(status).toBe(0);
    expect(stdout).toContain('"order:42" was freed.');
    expect(await shop.isLocked('order:42')).toBe(false);
  }, 120_000);

  it('does not free the lock if its holder changed after the prompt', async () => {
    const lock = await shop.acquire('order:43', { lease: '10m' });
    const asked = project.startInTerminal(['free', 'order:43', ...redis]);
    await asked.writes(/\[y\/N\]/);
    await lock.release();
    await shop.acquire('order:43', { lease: '10m' });
    asked.type('y\r');
    const { status, stdout } = await asked.ended;
    expect(status).toBe(1);
    expect(stdout).toContain('has a new holder');
    expect(await shop.isLocked('order:43')).toBe(true);
  }, 60_000);
});

it('prints colors only on a terminal without NO_COLOR', async () => {
  await shop.acquire('order:44', { lease: '10m' });
  const list = ['list', 'order:44', ...redis];
  expect((await project.startInTerminal(list).ended).stdout).toContain(BOLD);
  expect((await project.startInTerminal(list, { env: { NO_COLOR: '1' } }).ended).stdout).not.toMatch(/\u001b\[\d+m/);
  expect((await project.run(list)).stdout).not.toContain('\u001b');
  const doctor = await project.startInTerminal(['doctor', ...redis]).ended;
  expect(doctor.stdout).toMatch(/\u001b\[33mwarning\u001b\[39m: /);
}, 60_000);

describe('with a provider from a config file', () => {
  const write = (list: string) =>
    writeFile(
      join(project.folder, 'lock.config.mjs'),
      `import { setTimeout as pause } from 'node:timers/promises';
       const lock = (number) => ({ key: 'key:' + number, state: 'held', mode: 'exclusive', holders: 1, waiters: 0, expiresIn: null,
         fencingToken: null, instances: ['a'], since: null });
       export default {
         createBackend: () => ({
           capabilities: { shared: false, fair: false, fencing: false, lease: 'session', minHold: false, forceRelease: true, list: true },
           connect: async () => undefined,
           close: async () => undefined,
           async *list() { ${list} },
         }),
       };`,
    );
  const config = ['--config', 'lock.config.mjs'];

  it('shows the progress of a long list, but only on a terminal', async () => {
    await write('for (let n = 0; n < 12; n += 1) { await pause(100); yield lock(n); }');
    const { stdout } = await project.startInTerminal(['list', ...config]).ended;
    expect(stdout).toMatch(/\r\u001b\[K\d+ locks …[^]*\r\u001b\[K[^]*KEY/);
    expect(stdout).toMatch(/key:11/);
    expect((await project.run(['list', ...config])).stderr).toBe('');
  }, 60_000);

  it('stops when the reader closes the pipe', async () => {
    await write('for (let n = 0; ; n += 1) yield lock(n);');
    const list = project.start(['list', '--json', ...config]);
    await list.writes(/key:10/);
    list.child.stdout.destroy();
    const { status, stderr } = await list.ended;
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  }, 60_000);
});
