import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { LockManager } from '../../lib/core/lock-manager.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { startEnsemble, type ZooKeeperEnsemble } from '../servers/zookeeper-ensemble.js';

/** How long the locks of a killed process stay, in ms. */
const SESSION = 8_000;
/** Long keys, so that few locks are enough. */
const KEY_LENGTH = 195;
/** Of so many the servers cannot read the transaction that ends the session: 2.6 MB. */
const TOO_MANY = 10_000;

describe('a process that holds as many locks as it can', () => {
  let ensemble: ZooKeeperEnsemble;
  let library: CompiledLibrary;
  let here: LockManager;
  let hoarder: ChildProcess | undefined;

  beforeAll(async () => {
    ensemble = await startEnsemble({ config: { syncLimit: 50 } });
    library = await compileLibrary();
    const { connectString } = ensemble;
    here = new LockManager({ providers: { zookeeper: new ZooKeeperLockProvider({ connectString }) } });
    await here.start();
  }, 120_000);
  afterAll(async () => {
    hoarder?.kill('SIGKILL');
    await here.stop();
    await library.remove();
    await ensemble.stop();
  });

  it('may crash: the servers end its session, and can be started again', async () => {
    const args = [library.folder, ensemble.connectString, SESSION, KEY_LENGTH, TOO_MANY].map(String);
    hoarder = fork(join(import.meta.dirname, 'hoarder.mjs'), args, { execArgv: [] });
    const [[first, second]] = (await once(hoarder, 'message')) as [{ count: number; code?: string }[]];
    const key = '0'.padStart(KEY_LENGTH, 'k');
    expect(await here.tryAcquire(key)).toBeNull();

    hoarder.kill('SIGKILL');
    const lock = await here.acquire(key, { wait: '1m' });
    await lock.release();
    for (const server of ensemble.servers) await server.kill();
    await Promise.all(ensemble.servers.map((server) => server.restart()));
    await (await here.acquire(key, { wait: '1m' })).release();

    // What is released makes room.
    expect(second).toEqual(first);
    expect(first!.code).toBe('LOCK_CAPACITY');
    expect(first!.count).toBeGreaterThan(3_000);
  }, 180_000);
});
