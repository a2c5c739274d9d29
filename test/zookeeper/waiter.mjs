// A process of its own that asks for one lock and says when it has it. It keeps it until it is told to release it.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , library, connectString, key] = process.argv;
const load = (file) => import(pathToFileURL(join(library, file)).href);
const { LockManager } = await load('engine/lock-manager.js');
const { ZooKeeperLockProvider } = await load('providers/zookeeper/index.js');

const provider = new ZooKeeperLockProvider({ connectString, sessionTimeout: 2_000 });
const manager = new LockManager({ providers: { zookeeper: provider } });
await manager.start();
process.on('message', async (command) => {
  if (command === 'acquire') {
    const lock = await manager.acquire(key, { wait: '60s' });
    process.once('message', async () => process.send(await lock.release()));
    process.send('granted');
  }
});
process.on('disconnect', () => process.exit());
process.send('ready');
