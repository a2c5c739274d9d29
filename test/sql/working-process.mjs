// A process of its own that runs a long statement in the transaction of a row lock.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , library, url, key] = process.argv;
const load = (file) => import(pathToFileURL(join(library, file)).href);
const { SqlRowLockProvider, sqlClientOf } = await load('providers/sql/index.js');
const { LockManager } = await load('core/lock-manager.js');

const locks = new LockManager({ providers: { sql: new SqlRowLockProvider({ url }) } });
await locks.start();
await locks.withLock(key, async (lock) => {
  const working = sqlClientOf(lock).query('SELECT pg_sleep(600)');
  process.send('working');
  await working;
});
