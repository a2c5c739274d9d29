import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { LockManager } from '../../../lib/core/lock-manager.js';
import { RedisLockProvider } from '../../../lib/providers/redis/index.js';
import { type RedisServer, startRedisServer } from '../../servers/redis-server.mjs';
import { until } from '../../until.js';
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
  redis = ['--redis', server.url];
  shop = new LockManager({ providers: { main: new RedisLockProvider({ url: server.url }) }, instance: 'shop-1' });
  await shop.start();
}, 240_000);

afterAll(async () => {
  await shop.stop();
  await Promise.all([server.stop(), packed.remove()]);
});

describe('free', () => {
  it('shows the holder, asks, and frees for yes alone', async () => {
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

  it('does not free the lock of another holder than the one it has shown', async () => {
    const lock = await shop.acquire('order:43', { lease: '10m' });
    const asked = project.startInTerminal(['free', 'order:43', ...redis]);
    await asked.writes(/\[y\/N\]/);
    await lock.release();
    await shop.acquire('order:43', { lease: '10m' });
    asked.type('y\r');
    const { status, stdout } = await asked.ended;
    expect(status).toBe(1);
    expect(stdout).toContain('has another holder by now');
    expect(await shop.isLocked('order:43')).toBe(true);
  }, 60_000);
});

it('color only on a terminal, and not with NO_COLOR', async () => {
  await shop.acquire('order:44', { lease: '10m' });
  const list = ['list', 'order:44', ...redis];
  expect((await project.startInTerminal(list).ended).stdout).toContain(BOLD);
  expect((await project.startInTerminal(list, { env: { NO_COLOR: '1' } }).ended).stdout).not.toMatch(/\u001b\[\d+m/);
  expect((await project.run(list)).stdout).not.toContain('\u001b');
  const doctor = await project.startInTerminal(['doctor', ...redis]).ended;
  expect(doctor.stdout).toMatch(/\u001b\[33mwarning\u001b\[39m: /);
}, 60_000);

it('watch shows what changes, and Ctrl-C ends it', async () => {
  const first = await shop.acquire('watched:1', { lease: '10m' });
  const watch = project.startInTerminal(['watch', 'watched:', ...redis]);
  await watch.writes(/watched:1 +held +shop-1/);
  await shop.acquire('watched:2', { lease: '10m' });
  await watch.writes(/watched:2 +held +shop-1/);
  await first.release();
  await watch.writes(/ 1 locked in "lock"[^]*watched:2(?![^]*watched:1)/);
  watch.type(CTRL_C);
  expect((await watch.ended).status).toBe(0);
}, 60_000);

it('watch without a terminal writes one part after the other, and a line of JSON for each', async () => {
  await shop.acquire('piped:1', { lease: '10m' });
  const startedAt = performance.now();
  const watch = project.start(['watch', 'piped:', '--json', ...redis]);
  await watch.writes(/\n.*\n/);
  expect(performance.now() - startedAt).toBeGreaterThan(2_000);
  watch.child.kill('SIGINT');
  const { status, stdout } = await watch.ended;
  expect(status).toBe(0);
  const frames = stdout.trim().split('\n');
  for (const frame of frames) {
    expect(JSON.parse(frame)).toMatchObject({ count: 1, locks: [{ key: 'piped:1', instances: ['shop-1'] }] });
  }
  const plain = project.start(['watch', 'piped:', ...redis]);
  await plain.writes(/^piped:1 +held +shop-1/m);
  plain.child.kill('SIGTERM');
  expect(await plain.ended).toMatchObject({ status: 0, stderr: '' });
  expect(plain.stdout).not.toContain('\u001b');
}, 60_000);

describe('a provider of the file', () => {
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

  it('a long list shows its progress, on a terminal only', async () => {
    await write('for (let n = 0; n < 12; n += 1) { await pause(100); yield lock(n); }');
    const { stdout } = await project.startInTerminal(['list', ...config]).ended;
    expect(stdout).toMatch(/\r\u001b\[K\d+ locks …[^]*\r\u001b\[K[^]*KEY/);
    expect(stdout).toMatch(/key:11/);
    expect((await project.run(['list', ...config])).stderr).toBe('');
  }, 60_000);

  it('watch of more than 1 000 keys needs a prefix', async () => {
    await write('for (let n = 0; n < 1_001; n += 1) yield lock(n);');
    const refused = await project.run(['watch', ...config]);
    expect(refused).toMatchObject({ status: 2, stdout: '' });
    expect(refused.stderr).toContain('More than 1000 keys are locked. Give a prefix');
    const watch = project.startInTerminal(['watch', '--prefix', 'key:', ...config]);
    await watch.writes(/1001 locked in "lock"[^]*and \d+ more/);
    watch.type(CTRL_C);
    expect((await watch.ended).status).toBe(0);
  }, 60_000);

  it('a reader that has seen enough ends it', async () => {
    await write('for (let n = 0; ; n += 1) yield lock(n);');
    const list = project.start(['list', '--json', ...config]);
    await list.writes(/key:10/);
    list.child.stdout.destroy();
    const { status, stderr } = await list.ended;
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  }, 60_000);
});

it('watch shows an outage that begins later, and goes on after it', async () => {
  const other = await startRedisServer();
  const watch = project.start(['watch', '--redis', other.url]);
  await watch.writes(/0 locked/);
  const down = other.crash({ downFor: 6_000 });
  await watch.writes(/The locks in "lock" are not known\.\n.*did not answer/);
  await down;
  const seen = watch.stdout.length;
  await until(() => /0 locked in "lock"\nKEY/.test(watch.stdout.slice(seen)), 'the list is shown again');
  watch.child.kill('SIGINT');
  expect((await watch.ended).status).toBe(0);
  await other.stop();
}, 60_000);
