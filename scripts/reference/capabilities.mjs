import { MemoryLockProvider } from '../../dist/esm/index.js';
import { MemcachedLockProvider } from '../../dist/esm/memcached.js';
import { systemClock, systemRandom } from '../../dist/esm/provider-kit.js';
import { RedisLockProvider } from '../../dist/esm/redis.js';
import { RedlockLockProvider } from '../../dist/esm/redlock.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider } from '../../dist/esm/sql.js';
import { ZooKeeperLockProvider } from '../../dist/esm/zookeeper.js';

const postgres = { url: 'postgres://localhost/app' };
const mysql = { url: 'mysql://localhost/app' };
const nodes = ['a', 'b', 'c'].map((host) => ({ url: `redis://${host}:6379` }));

const PROVIDERS = {
  memory: new MemoryLockProvider(),
  Redis: new RedisLockProvider({ url: 'redis://localhost:6379' }),
  Redlock: new RedlockLockProvider({ nodes }),
  'SQL version lock': new SqlVersionLockProvider(postgres),
  'SQL row lock, Postgres': new SqlRowLockProvider(postgres),
  'SQL row lock, MySQL': new SqlRowLockProvider(mysql),
  'SQL advisory lock, Postgres': new SqlAdvisoryLockProvider(postgres),
  'SQL advisory lock, MySQL': new SqlAdvisoryLockProvider(mysql),
  ZooKeeper: new ZooKeeperLockProvider({ connectString: 'localhost:2181' }),
  memcached: new MemcachedLockProvider({ server: 'localhost:11211' }),
};

/** By column: whether a backend has the capability. The backend is created but never connected. */
const COLUMNS = {
  'lease per lock': ({ capabilities }) => capabilities.lease === 'per-lock',
  '`minHold`': ({ capabilities }) => capabilities.minHold,
  shared: ({ capabilities }) => capabilities.shared,
  '[limits](limits.md)': ({ capabilities }) => capabilities.limits,
  'fencing token': ({ capabilities }) => capabilities.fencing,
  'fair among processes': ({ capabilities }) => capabilities.fair,
  '[`inspect`, `free`](operate/cli.md)': ({ capabilities }) => capabilities.forceRelease,
  '[`list`](operate/cli.md)': ({ capabilities }) => capabilities.list,
  'job records': ({ records }) => records !== undefined,
  "`release: 'sent'`": ({ capabilities }) => capabilities.ordered,
};

/** The capabilities of each provider, in one table. */
export function capabilityTable() {
  const head = ['', ...Object.keys(COLUMNS)];
  const rows = Object.entries(PROVIDERS).map(([name, provider]) => {
    const backend = provider.createBackend(context());
    return [name, ...Object.values(COLUMNS).map((isOffered) => (isOffered(backend) ? 'yes' : 'no'))];
  });
  return [head, head.map(() => '---'), ...rows].map((cells) => `|${cells.join('|')}|`).join('\n');
}

function context() {
  return {
    name: 'default',
    namespace: 'lock',
    instance: { id: '0123456789ab', name: 'documentation' },
    clock: systemClock,
    random: systemRandom(),
    logger: console,
    emit: () => undefined,
  };
}
