// A separate process that acquires locks until it gets an error or has `most`. It releases them all, acquires as many
// as it can again, and reports the count of each round with the code of the error. It keeps the locks until it is
// killed.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , library, connectString, sessionTimeout, keyLength, most] = process.argv;
const load = (file) => import(pathToFileURL(join(library, file)).href);
const { LockManager } = await load('core/lock-manager.js');
const { ZooKeeperLockProvider } = await load('providers/zookeeper/index.js');

const provider = new ZooKeeperLockProvider({ connectString, sessionTimeout: Number(sessionTimeout) });
const manager = new LockManager({ providers: { zookeeper: provider } });
await manager.start();

async function hoard() {
  const locks = [];
  let next = 0;
  let error;
  const acquire = async () => {
    while (!error && next < Number(most)) {
      const key = String(next++).padStart(Number(keyLength), 'k');
      try {
        locks.push(await manager.acquire(key, { wait: '1m' }));
      } catch (cause) {
        error = cause;
      }
    }
  };
  await Promise.all(Array.from({ length: 64 }, acquire));
  return { locks, code: error?.code };
}

const first = await hoard();
await Promise.all(first.locks.map((lock) => lock.release()));
const second = await hoard();
process.on('disconnect', () => process.exit());
process.send([first, second].map(({ locks, code }) => ({ count: locks.length, code })));
