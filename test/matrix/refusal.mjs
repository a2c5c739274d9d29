// Boots a provider on a server from LOCK_TEST_ROOT that is too old. Prints the error's sentence, or fails if it boots.
import { DataSource } from 'typeorm';
import { LockConfigError, LockManager } from '../../dist/esm/index.js';
import { MemcachedLockProvider } from '../../dist/esm/memcached.js';
import { RedisLockProvider } from '../../dist/esm/redis.js';
import { TypeOrmVersionLockProvider } from '../../dist/esm/typeorm.js';
import { startMemcached } from '../servers/memcached-server.mjs';
import { startRedisServer } from '../servers/redis-server.mjs';
import { startMariaDb } from '../servers/sql-server.mjs';

const PROVIDERS = {
  async redis() {
    const server = await startRedisServer();
    return { server, provider: new RedisLockProvider({ url: server.url }) };
  },
  async mysql() {
    const server = await startMariaDb();
    const dataSource = new DataSource({ type: 'mariadb', url: server.url });
    return { server, provider: new TypeOrmVersionLockProvider({ dataSource, synchronize: true }) };
  },
  async memcached() {
    const server = await startMemcached();
    return { server, provider: new MemcachedLockProvider({ server: server.address }) };
  },
};

const { server, provider } = await PROVIDERS[process.argv[2]]();
const locks = new LockManager({ providers: { locks: provider } });
const outcome = await locks.start().catch((error) => error);
await locks.stop();
await server.stop();
if (!(outcome instanceof LockConfigError)) throw new Error('The server was not refused.', { cause: outcome });
console.log(/\S+ [\d.]+ is too old[^.]*(\.\d[^.]*)*\./.exec(outcome.message)[0]);
