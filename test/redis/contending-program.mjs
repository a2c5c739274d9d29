// A process of its own with an application. It takes the lock `order:1` when it is told to, and releases it when it is told again.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , library, url, instance] = process.argv;
const load = (file) => import(pathToFileURL(join(library, file)).href);
const { RedisLockProvider } = await load('providers/redis/index.js');
const { LockManager } = await load('core/lock-manager.js');

const locks = new LockManager({ providers: { redis: new RedisLockProvider({ url }) }, instance, shutdownGrace: 0 });
await locks.start();
let held;
process.on('message', async (message) => {
  if (message === 'acquire') held = await locks.acquire('order:1', { wait: '1m' });
  else await held.release();
  process.send(message);
});
process.on('disconnect', () => process.exit());
process.send('ready');
