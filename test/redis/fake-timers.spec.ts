import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
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
