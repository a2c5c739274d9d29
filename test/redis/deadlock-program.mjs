// A separate process with an application. On a message, it acquires one lock and reports it. On the next message, it
// waits for another lock while it holds the first.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , library, url, instance] = process.argv;
const load = (file) => import(pathToFileURL(join(library, file)).href);
const { RedisLockProvider } = await load('providers/redis/index.js');
const { LockManager } = await load('core/lock-manager.js');

const log = (message) => process.send({ event: 'log', message });
const locks = new LockManager({
  providers: { redis: new RedisLockProvider({ url }) },
  instance,
  logger: { debug: log, warn: log, error: log },
});
await locks.start();
process.once('message', async ({ holds, waitsFor, lease }) => {
  const lock = await locks.acquire(holds, { lease });
  process.send({ event: 'holds', holder: lock.holder });
  await new Promise((resolve) => process.once('message', resolve));
  const begun = Date.now();
  try {
    await lock.run(() => locks.withLock(waitsFor, () => undefined, { wait: 120_000, lease }));
    process.send({ event: 'ended', outcome: 'done', took: Date.now() - begun });
  } catch ({ code, message, cycle }) {
    process.send({ event: 'ended', outcome: code, took: Date.now() - begun, message, cycle });
  }
  await lock.release();
});
process.on('disconnect', () => process.exit());
process.send({ event: 'ready' });
