// A separate process that acquires one advisory lock, reports its token, and keeps the lock as the watchdog would.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { DataSource } from 'typeorm';

const [, , library, source, key, sessionGuard] = process.argv;
const load = (file) => import(pathToFileURL(join(library, file)).href);
const { TypeOrmAdvisoryLockProvider } = await load('providers/typeorm/index.js');
const { LockManager } = await load('core/lock-manager.js');

const dataSource = new DataSource(JSON.parse(source));
const provider = new TypeOrmAdvisoryLockProvider({ dataSource, sessionGuard, fencing: true, synchronize: true });
const locks = new LockManager({ providers: { sql: provider }, namespace: 'test' });
await locks.start();
const lock = await locks.acquire(key);
process.send({ token: String(lock.fencingToken) });
process.on('message', () => process.send({ isHeld: lock.isHeld() }));
process.on('disconnect', () => process.exit());
