// A separate process that requests one lock and reports when it holds it. It keeps the lock until it gets the command
// to release it, and reports if the lock is lost earlier.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , library, connectString, key, sessionTimeout] = process.argv;
const load = (file) => import(pathToFileURL(join(library, file)).href);
const { LockManager } = await load('core/lock-manager.js');
const { ZooKeeperLockProvider } = await load('providers/zookeeper/index.js');

const provider = new ZooKeeperLockProvider({ connectString, sessionTimeout: Number(sessionTimeout) });
const manager = new LockManager({ providers: { zookeeper: provider } });
await manager.start();
process.on('message', async (command) => {
  if (command === 'acquire') {
    const lock = await manager.acquire(key, { wait: '10m' });
    process.once('message', async () => process.send(await lock.release()));
    lock.signal.addEventListener('abort', () => process.send('lost'));
    process.send('granted');
  }
});
process.on('disconnect', () => process.exit());
process.send('ready');
