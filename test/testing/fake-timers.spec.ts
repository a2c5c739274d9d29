import { jest } from '@jest/globals';
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { LockManager, MemoryLockProvider } from '../../lib/index.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';

const PROGRAM = fileURLToPath(new URL('fake-timers-program.mjs', import.meta.url));

describe('fake timers of a process leave the clock of the core alone', () => {
  let server: RedisServer;
  let library: CompiledLibrary;

  beforeAll(async () => {
    server = await startRedisServer();
    library = await compileLibrary();
  }, 120_000);
  afterAll(async () => {
    await library.remove();
    await server.stop();
  });

  it.each([
    ['sinon', 'import', 'memory'],
    ['sinon', 'boot', 'memory'],
    ['sinon', 'held', 'memory'],
    ['sinon', 'import', 'redis'],
    ['sinon', 'boot', 'redis'],
    ['sinon', 'held', 'redis'],
    ['node', 'boot', 'memory'],
    ['node', 'held', 'memory'],
    ['node', 'boot', 'redis'],
    ['node', 'held', 'redis'],
  ])('those of %s, installed at "%s", with locks in %s', async (engine, moment, backend) => {
    const args = [PROGRAM, library.folder, engine, moment, ...(backend === 'redis' ? [server.url] : [])];
    const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 15_000, killSignal: 'SIGKILL' });
    expect(JSON.parse(stdout)).toEqual({
      heldAtFirst: true,
      heldLater: true,
      busy: 'LOCK_BUSY',
      released: 'released',
      value: 'done',
    });
  });
});

describe('fake timers of Jest', () => {
  afterEach(() => {
    jest.useRealTimers();
  });

  it.each(['boot', 'held'])('installed at "%s", leave the clock of the core alone', async (moment) => {
    if (moment === 'boot') jest.useFakeTimers();
    const locks = new LockManager({ providers: { memory: new MemoryLockProvider() } });
    await locks.start();
    const lock = await locks.acquire('order');
    if (moment === 'held') jest.useFakeTimers();
    expect(lock.isHeld()).toBe(true);
    await expect(locks.acquire('order', { wait: 20 })).rejects.toMatchObject({ code: 'LOCK_BUSY' });
    jest.advanceTimersByTime(3_600_000);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
    await expect(locks.withLock('order', () => 'done')).resolves.toBe('done');
    await locks.stop();
  });

  it('installed before this package is loaded, leave it alone as well', async () => {
    jest.useFakeTimers();
    await jest.isolateModulesAsync(async () => {
      const fresh = await import('../../lib/index.js');
      expect(fresh.LockManager).not.toBe(LockManager);
      const locks = new fresh.LockManager({ providers: { memory: new fresh.MemoryLockProvider() } });
      await locks.start();
      const lock = await locks.acquire('order');
      await expect(locks.acquire('order', { wait: 20 })).rejects.toMatchObject({ code: 'LOCK_BUSY' });
      await lock.release();
      await locks.stop();
    });
  });
});
