// A separate process that waits for one lock until it is killed, or, with `works`, runs a long statement in the
// transaction of a row lock.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , library, provider, url, key, works] = process.argv;
const load = (file) => import(pathToFileURL(join(library, file)).href);
const { sqlClientOf, ...providers } = await load('providers/sql/index.js');
const { LockManager } = await load('core/lock-manager.js');

const locks = new LockManager({ providers: { sql: new providers[provider]({ url }) } });
await locks.start();
locks.events.on('waiting', () => process.send('waiting'));
await locks.withLock(
  key,
  async (lock) => {
    const working = works && sqlClientOf(lock).query('SELECT pg_sleep(600)');
    process.send('working');
    await working;
  },
  { wait: '10m' },
);
