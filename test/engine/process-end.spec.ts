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
    const engine = join(library.folder, 'engine/lock-manager.js');
    const memory = join(library.folder, 'providers/memory/memory-lock-provider.js');
    const source = `
      import { LockManager } from '${engine}';
      import { MemoryLockProvider } from '${memory}';
      const locks = new LockManager({ providers: { memory: new MemoryLockProvider() }, shutdownGrace: 50 });
      await locks.start();
      ${body}`;
    return run(process.execPath, ['--input-type=module', '--eval', source]);
  };

  it('ends while it holds a lock: no timer of ours keeps it alive', async () => {
    const { stdout } = await program(`await locks.acquire('a'); console.log('held');`);
    expect(stdout).toBe('held\n');
  });

  it('does not end in the middle of a stop', async () => {
    const { stdout } = await program(`await locks.acquire('a'); await locks.stop(); console.log('stopped');`);
    expect(stdout).toBe('stopped\n');
  });
});
