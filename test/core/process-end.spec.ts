import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { compileLibrary, type CompiledLibrary } from '../servers/compiled-library.js';

const run = promisify(execFile);

// Whether a process ends is seen in a process alone.
describe('a process that has nothing else to do', () => {
  let library: CompiledLibrary;
  beforeAll(async () => {
    library = await compileLibrary();
  });
  afterAll(() => library.remove());

  const program = (body: string) => {
    const manager = join(library.folder, 'core/lock-manager.js');
    const memory = join(library.folder, 'providers/memory/memory-lock-provider.js');
    const source = `
      import { LockManager } from '${manager}';
      import { MemoryLockProvider } from '${memory}';
      const locks = new LockManager({ providers: { memory: new MemoryLockProvider() }, shutdownGrace: 50 });
      await locks.start();
      ${body}`;
    return run(process.execPath, ['--input-type=module', '--eval', source]);
  };

  it('ends while it holds a lock in memory, which ends with it: no timer of ours keeps it alive', async () => {
    const { stdout } = await program(`await locks.acquire('a'); console.log('held');`);
    expect(stdout).toBe('held\n');
  });

  it('does not end while a caller waits for a lock', async () => {
    const { stdout } = await program(`
      await locks.acquire('a');
      const error = await locks.acquire('a', { wait: '100ms' }).catch((reason) => reason);
      console.log(error.code);`);
    expect(stdout).toBe('LOCK_BUSY\n');
  });

  it('does not end before the hold ends that a caller without a deadline waits for', async () => {
    const { stdout } = await program(`
      await locks.acquire('a', { maxHold: 200 });
      await locks.acquire('a', { wait: Infinity });
      console.log('granted');`);
    expect(stdout).toBe('granted\n');
  });

  it('does not end while a caller waits for a backend that does not answer', async () => {
    const { stdout } = await program(`
      class Down extends MemoryLockProvider {
        createBackend(context) {
          const acquire = () => Promise.reject(new Error('down'));
          return Object.assign(super.createBackend(context), { acquire });
        }
      }
      const others = new LockManager({ providers: { down: new Down() } });
      await others.start();
      const error = await others.acquire('a', { wait: '100ms' }).catch((reason) => reason);
      console.log(error.code);`);
    expect(stdout).toBe('LOCK_UNAVAILABLE\n');
  });

  it('does not end while it holds a lock of a server, which may be away, before that is released or lost', async () => {
    const { stdout } = await program(`
      class Away extends MemoryLockProvider {
        createBackend(context) {
          const renew = () => Promise.reject(new Error('away'));
          return Object.assign(super.createBackend(context), { renew, locksEndWithProcess: false });
        }
      }
      const others = new LockManager({ providers: { away: new Away() } });
      await others.start();
      const lock = await others.acquire('a', { lease: 200 });
      lock.signal.addEventListener('abort', () => console.log(lock.signal.reason.reason));`);
    expect(stdout).toBe('expired\n');
  });

  it('does not end in the middle of a stop', async () => {
    const { stdout } = await program(`await locks.acquire('a'); await locks.stop(); console.log('stopped');`);
    expect(stdout).toBe('stopped\n');
  });
});
