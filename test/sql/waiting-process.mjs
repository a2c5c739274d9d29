// A process of its own that waits for one lock until it is killed.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , library, provider, url, key] = process.argv;
const load = (file) => import(pathToFileURL(join(library, file)).href);
const providers = await load('providers/sql/index.js');
const { LockManager } = await load('core/lock-manager.js');

const locks = new LockManager({ providers: { sql: new providers[provider]({ url }) } });
await locks.start();
locks.events.on('waiting', () => process.send('waiting'));
await locks.acquire(key, { wait: '10m' });
