// A separate process with an application. It acquires the lock `order:1` on an "acquire" message, and releases it on
// any other.
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
